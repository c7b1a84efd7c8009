import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { connect, ExploreError, InvalidRequest, NotFound, Sandbox, type Exploration } from 'ramet'
import { eventually } from './harness.js'

let base: Sandbox
before(async () => {
  base = await Sandbox.create({ image: 'python' })
})
after(async () => {
  for (const one of await base.explorations()) await one.remove()
  await base.destroy()
})

test('the best attempt is promoted, and the table tells of all', async () => {
  await using children = await base.fork()
  const sandbox = children[0] as Sandbox
  await sandbox.runCode('x = 3')
  const found = await sandbox.explore({
    code: "import os\nscore = abs(x - int(os.environ['GUESS']))\nscore",
    variants: [1, 4, 9].map((n) => ({ env: { GUESS: n } })),
    score: { by: 'value', goal: 'min' },
    then: 'promote',
    variables: true,
  })
  assert.deepEqual([found.state, found.winner?.env, found.winner?.score, found.sandboxes.length], ['done', { GUESS: '4' }, 1, 0])
  assert.deepEqual(found.attempts.map((attempt) => attempt.score), [2, 1, 6])
  assert.ok(found.winner?.variables?.some((change) => change.name === 'score'), JSON.stringify(found.winner))
  assert.equal((await sandbox.runCode('score')).value, 1)
  const [head, titles, ...rows] = String(found).split('\n')
  assert.ok(head?.startsWith(`${found.id} done`))
  assert.deepEqual(titles?.trim().split(/ +/), ['attempt', 'state', 'score', 'exit', 'ms', 'output'])
  assert.ok(rows.length === 3 && rows[1]?.startsWith('*  1 GUESS=4  succeeded'), String(found))
})

test('events come while it goes on, and what is kept is there', async () => {
  const begun = await base.explore(
    {
      variants: [
        { name: 'slow', command: 'sleep 1000' },
        { name: 'fast', command: 'cat /srv/in; echo $1; read x; echo "$x"', args: [7], files: { '/srv/in': Buffer.from([255, 10]) }, stdin: 'y\n' },
      ],
      search: 'first',
    },
    { wait: false },
  )
  const seen: string[] = []
  for await (const { attempt } of begun) if (attempt) seen.push(`${attempt.name} ${attempt.state}`)
  assert.ok(seen.includes('fast succeeded') && seen.includes('slow stopped'), seen.join())
  assert.equal((await begun.wait()).winner?.name, 'fast')
  await using kept = begun.sandboxes
  assert.deepEqual(kept.map((one) => one.id), [begun.winner?.sandbox])
  assert.deepEqual([...(await (kept[0] as Sandbox).files.readBytes('/srv/in'))], [255, 10])
  const again = await connect().exploration(begun.id)
  assert.deepEqual([again.id, again.winner?.stdout.endsWith('\n7\ny\n')], [begun.id, true])
  for await (const event of begun.events({ since: again.lastInfo.seq })) assert.fail(JSON.stringify(event))
})

test('an exploration that fails is an error with what it came to, and nothing found is a result', async () => {
  const nothing = await base.explore({ command: 'exit 3', width: 2 })
  assert.deepEqual([nothing.state, nothing.winner, nothing.attempts.map((one) => one.exitCode)], ['done', undefined, [3, 3]])
  const [sandbox] = await base.fork()
  const torn = await (sandbox as Sandbox).explore({ command: 'echo $RAMET_ATTEMPT > /srv/x', width: 2, winners: 2, then: 'merge' })
  assert.match(`${torn.state} ${torn}`, /^done .*the merge left 1 conflict, and the winners are kept/)
  assert.deepEqual(torn.sandboxes.map((one) => one.id), torn.attempts.map((one) => one.sandbox))
  await torn.sandboxes.destroy()
  const begun = await (sandbox as Sandbox).explore({ command: 'sleep 1000', then: 'promote' }, { wait: false })
  await sandbox?.destroy()
  await assert.rejects(begun.wait(), (error: ExploreError<Exploration>) => error instanceof ExploreError && error.exploration === begun && /is gone/.test(error.message))
  assert.equal(begun.sandboxes.length, 0)
  await assert.rejects(base.explore({ command: 'true', search: 'depth' as 'first' }), (error: InvalidRequest) => error.field === 'search.strategy')
  await assert.rejects(base.explore({ command: 'true', code: '1' }), (error: InvalidRequest) => error.field === 'code')
})

test('one that is cancelled, or whose caller gives up, leaves nothing', async () => {
  const begun = await base.explore({ command: 'sleep 1000', width: 2 }, { wait: false })
  assert.equal((await begun.cancel()).state, 'canceled')
  assert.deepEqual(new Set(begun.attempts.map((one) => one.state)), new Set(['stopped']))
  await begun.remove()
  await assert.rejects(begun.info(), NotFound)
  const caller = new AbortController()
  const waiting = base.explore('sleep 1000', { signal: caller.signal })
  await eventually('it runs', async () => (await base.explorations({ state: 'running' })).length === 1)
  caller.abort()
  await assert.rejects(waiting, { name: 'AbortError' })
  assert.equal((await base.explorations()).at(-1)?.state, 'canceled')
})
