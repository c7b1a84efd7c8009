package cli

// examples returns the examples of help pages, by the path of the command below ramet. A test
// parses each line as ramet would.
func examples() map[string]string {
	return map[string]string{
		"ramet": `ramet image build python --include python3
ramet create python --name base
ramet exec base -- python3 -c 'print(6 * 7)'
ramet fork base -n 3 --name try
ramet diff base try-1
ramet promote try-1`,

		"create": `ramet create python --name base
ramet create python --cpus 2 --memory 2G --disk 10G --env KEY=value
ramet create python --ttl 24h --idle-timeout 10m
ramet create python --net host-registries --allow git.example.com:22
ramet create python --secret llm.example.com:Authorization=LLM_API_KEY
ramet create python --self-control forks=20,depth=3,snapshots=5`,
		"ls": `ramet ls
ramet ls --state failed -q
ramet ls --parent base --meta plan=a --json`,
		"tree": `ramet tree
ramet tree base --watch`,
		"inspect": `ramet inspect base
ramet inspect base --json | jq .limits`,
		"tag": `ramet tag base plan=a step=2
ramet tag base plan-`,
		"rename": `ramet rename try-2 winner`,
		"update": `ramet update base --ttl 24h
ramet update base --idle-timeout 1h --idle-action pause
ramet update base --keep-snapshots 5 --snapshot-max-age 48h`,
		"pause":  `ramet pause base`,
		"resume": `ramet resume base`,
		"hibernate": `ramet hibernate base
ramet exec base -- ls    # wakes it`,
		"wake": `ramet wake base`,
		"rm": `ramet rm try-1 try-3
ramet rm --children base --dry-run
ramet rm --children base
ramet rm --state failed --meta plan=a
ramet rm good --cascade`,

		"exec": `ramet exec base -- python3 -c 'print(6 * 7)'
ramet exec base -c 'cd /srv && make test'
ramet exec -it base bash
ramet exec --from good --rm -- make test
ramet exec -d base -- python3 -m http.server 8000
ramet exec -i --cwd /srv --user nobody base -- tar -xf - < project.tar`,
		"shell": `ramet shell base
ramet shell --from python --rm`,
		"run-code": `ramet run-code base 'x = 6 * 7; x'
ramet run-code base --lang node 'const y = 1; y + 1'
ramet run-code base - < cell.py`,
		"attach": `ramet attach base 14
ramet attach -i base 14 < input.txt`,
		"ps": `ramet ps base
ramet ps -a --no-trunc base`,
		"logs": `ramet logs base
ramet logs -f -t base 14`,
		"kill": `ramet kill base 14
ramet kill -s INT -g base 14 15`,
		"cp": `ramet cp ./project base:/srv/project
ramet cp base:/root/answer .
ramet cp base:/srv/project - | tar -tf -`,
		"port": `ramet port base
ramet port base 8000
ramet port base 8000:8001 --wait 10s
ramet port base 8000 --url
ramet port base 8000 --publish 8080 --token
ramet port base --unpublish 8080`,

		"fork": `ramet fork base
ramet fork base -n 3 --name try
ramet fork base -n 5 -q --meta plan=a --env SEED=1
ramet fork base --net none
ramet fork base -n 3 --hold writes --record
ramet fork base --wait=false`,
		"diff": `ramet diff base try-1
ramet diff base try-1 /srv --hunks
ramet diff try-1 try-2 --processes --variables`,
		"merge": `ramet merge base try-1 try-2 --dry-run
ramet merge base try-1 try-2 --exclude __pycache__
ramet merge base try-3 --strategy theirs --path /srv/app`,
		"promote": `ramet promote try-1`,
		"explore": `ramet explore base -n 8 --best -- ./try.sh
ramet explore base --vary LR=0.1,0.01 --score json=loss --min -- ./train.py
ramet explore base -n 4 --first --timeout 1m -c 'make test'
ramet explore base -f plan.yaml --set search.rounds=3 --json`,
		"explore ls":     `ramet explore ls base`,
		"explore show":   `ramet explore show xpl_jlpofkb4jzkxl33l`,
		"explore cancel": `ramet explore cancel xpl_jlpofkb4jzkxl33l`,
		"explore rm":     `ramet explore rm xpl_jlpofkb4jzkxl33l`,

		"network": `ramet create python --name base --net host-registries
ramet network show base
ramet network log base`,
		"network show": `ramet network show base
ramet network show base > base.yaml`,
		"network set": `ramet network set base --allow git.example.com:22
ramet network set base --net open --deny telemetry.example.com
ramet network set base --net ./base.yaml
ramet network set base --net none`,
		"network test": `ramet network test base git.example.com:22
ramet network test base 192.0.2.1:53 --protocol udp`,
		"network log": `ramet network log base
ramet network log -f base --json | jq 'select(.verdict == "denied")'`,
		"network profiles": `ramet network profiles`,
		"secret": `ramet secret set LLM_API_KEY --for llm.example.com < key
ramet create python --secret llm.example.com:Authorization=LLM_API_KEY`,
		"secret set": `ramet secret set LLM_API_KEY --for llm.example.com < key
ramet secret set LLM_API_KEY --for llm.example.com --from-env LLM_API_KEY
ramet secret set WIKI --for wiki.example.com --header X-Token --methods GET`,
		"secret ls": `ramet secret ls`,
		"secret rm": `ramet secret rm LLM_API_KEY`,
		"volume": `ramet volume create data
ramet create python --volume data:/data`,
		"volume create": `ramet volume create data --size 2G`,
		"volume ls": `ramet volume ls
ramet volume ls -q`,
		"volume inspect": `ramet volume inspect data`,
		"volume rm":      `ramet volume rm data`,
		"held": `ramet fork base -n 3 --name try --hold writes
ramet held ls try-1
ramet promote try-1`,
		"held ls":      `ramet held ls try-1`,
		"held release": `ramet held release try-1`,
		"held drop":    `ramet held drop try-1`,

		"snapshot": `ramet snapshot base --name good
ramet snapshot base --memory -q`,
		"snapshots": `ramet snapshots
ramet snapshots -q`,
		"restore": `ramet restore good
ramet restore good -n 2 --name again`,
		"rollback": `ramet rollback base
ramet rollback base good
ramet rollback base --step 2`,
		"verify": `ramet verify good`,
		"pack": `ramet pack good -o good.tar
ramet pack good --dry-run
ramet pack good -o good.tar.age --encrypt-to team.keys`,
		"push": `ramet push good registry.example.org/team/warm:v1`,
		"pull": `ramet pull registry.example.org/team/warm:v1 --trust team.keys`,
		"key":  `ramet key`,
		"unpack": `ramet unpack good.tar
ramet unpack good.tar.age --identity key.txt --name theirs`,
		"timeline": `ramet timeline base`,
		"bisect": `ramet bisect base -- make test
ramet bisect base -c 'cd /srv && make test' --timeout 1m`,

		"image": `ramet image build python --include python3,python3-numpy
ramet image ls`,
		"image build": `ramet image build python --include python3,python3-numpy
ramet image build web --suite bookworm --include nodejs --include npm
ramet image build -t app .
ramet image build -f app/Dockerfile --build-arg VERSION=2 app:2 app`,
		"image import": `ramet image import mine ./rootfs
ramet image import app.tar --select app:2`,
		"image pull": `ramet image pull docker.io/library/python:3.13 --name python`,
		"image ls": `ramet image ls
ramet image ls -q`,
		"image rm": `ramet image rm python`,
		"image prune": `ramet image prune
ramet image prune --cache --unused-for 168h`,
		"image inspect": `ramet image inspect python`,
		"commit":        `ramet commit base tools -m 'with the tools'`,
		"export": `ramet export base -o changes.tar
ramet export base --format oci -o base.tar
ramet export base --format tar --gzip > files.tar.gz`,

		"stats": `ramet stats
ramet stats base`,
		"events": `ramet events -f
ramet events base --since 120 --kind created --json`,
		"audit": `ramet audit ls
ramet audit verify`,
		"audit ls":     `ramet audit ls --since 100 --json`,
		"audit verify": `ramet audit verify`,

		"api": `ramet api sandboxes/base
ramet api sandboxes -f image=python -f name=new -F 'limits[memory_mib]=512'
ramet api sandboxes/base/fork -F count=2 -f 'names[]=a' -f 'names[]=b'
ramet api -X DELETE sandboxes/new
ramet api snapshots --paginate | jq -r '.items[].id'
ramet api -H 'Accept: text/event-stream' events -X GET -f follow=true
ramet api /metrics`,
		"serve": `ramet serve
ramet serve --listen :7443 --tls-cert cert.pem --tls-key key.pem
ramet serve --network-max ./most.yaml`,
		"config": `ramet config
ramet config --json`,
		"token": `ramet token create --scope exec --tenant acme --ttl 12h
ramet token ls`,
		"token create": `ramet token create --scope admin --tenant acme --name ci
ramet token create --scope exec --tree base --ttl 12h`,
		"e2b": `ramet e2b prepare
ramet e2b prepare base --url http://127.0.0.1:3001`,
		"e2b prepare": `ramet e2b prepare
ramet e2b prepare base --tenant acme`,
		"token ls":     `ramet token ls --tenant acme`,
		"token rotate": `ramet token rotate tok_3famkokrbrsecelu --grace 10m`,
		"token rm":     `ramet token rm tok_3famkokrbrsecelu`,
		"tenant": `ramet tenant ls
ramet tenant quota acme --sandboxes 20 --memory 8G`,
		"skill": `ramet skill > .claude/skills/ramet/SKILL.md`,
		"mcp": `ramet mcp
ramet mcp --http 127.0.0.1:8765`,
		"tenant ls":   `ramet tenant ls`,
		"tenant show": `ramet tenant show acme`,
		"tenant quota": `ramet tenant quota acme --sandboxes 20 --memory 8G
ramet tenant quota acme --tree --depth 4
ramet tenant quota acme --network-mbit 100 --network-max ./most.yaml`,
		"tenant give": `ramet tenant give acme python`,

		"status":  `ramet status`,
		"stop":    `ramet stop`,
		"demo":    `ramet demo`,
		"bench":   `ramet bench`,
		"doctor":  `ramet doctor`,
		"jupyter": `ramet jupyter install`,
		"jupyter install": `ramet jupyter install
ramet jupyter install --python .venv/bin/python --image mine --name mine`,
		"man": `ramet man ~/.local/share/man/man1`,
		"version": `ramet version
ramet version --json`,
		"help": `ramet help fork
ramet help image build`,
		"completion":            `ramet completion bash`,
		"completion bash":       `ramet completion bash > ~/.local/share/bash-completion/completions/ramet`,
		"completion zsh":        `ramet completion zsh > "${fpath[1]}/_ramet"`,
		"completion fish":       `ramet completion fish > ~/.config/fish/completions/ramet.fish`,
		"completion powershell": `ramet completion powershell | Out-String | Invoke-Expression`,
	}
}
