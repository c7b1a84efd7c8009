# Starts the agent and waits until it listens.
setsid python3 /root/agent.py "$1" </dev/null >/root/agent.log 2>&1 &
agent=$!
until /bin/bash -c ": </dev/tcp/127.0.0.1/$1" 2>/dev/null; do
	if ! kill -0 $agent 2>/dev/null; then
		cat /root/agent.log >&2
		exit 1
	fi
	sleep 0.02
done
