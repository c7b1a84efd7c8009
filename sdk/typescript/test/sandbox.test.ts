import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { inspect } from 'node:util'
import { Conflict, connect, drawTree, ForkError, InvalidRequest, NotFound, Sandbox, type RametError, type SandboxEvent } from 'ramet'
import { eventually } from './harness.js'

let base: Sandbox
before(async () => {
  base = await Sandbox.create({ image: 'python', env: { WHO: 'parent' }, metadata: { suite: 'sandbox' } })
})
after(async () => {
  await base.destroy()
})

test('create takes what it is asked for, and tells it', async () => {
  await using sandbox = await Sandbox.create({ name: 'named', cpus: 1, memory: '256MiB', disk: '0.5GiB', ttl: 60_000, idleTimeout: 30_000, idleAction: 'pause', autoCheckpoint: 5 })
  assert.equal(sandbox.name, 'named')
  assert.equal(sandbox.state, 'running')
  const info = await sandbox.info()
  assert.equal(info.limits.memoryMib, 256)
  assert.equal(info.limits.diskMib, 512)
  assert.equal(info.limits.cpus, 1)
  assert.equal(info.lifecycle?.ttlMs, 60_000)
  assert.equal(info.lifecycle?.idleAction, 'pause')
  assert.equal(info.autoCheckpoint?.keep, 5)
  assert.ok((info.memory?.privateMib ?? 0) > 0)
  const again = await Sandbox.connect('named')
  assert.equal(again.id, sandbox.id)
  await again.update({ name: 'renamed', metadata: { a: 'b' } })
  assert.deepEqual((await Sandbox.list({ metadata: { a: 'b' } })).map((found) => found.name), ['renamed'])
  await again[Symbol.asyncDispose]() // it was not made through this handle
  assert.equal((await sandbox.info()).state, 'running')
})

test('a size that is none is refused before anything is asked', async () => {
  await assert.rejects(Sandbox.create({ memory: '1 parsec' }), (error: InvalidRequest) => error instanceof InvalidRequest && error.field === 'memory' && /512MiB/.test(error.message))
})

test('errors have class, code, field and remedy', async () => {
  await assert.rejects(Sandbox.connect('nobody'), (error: NotFound) => error instanceof NotFound && error.code === 'not_found' && error.status === 404)
  await assert.rejects(Sandbox.create({ image: 'no-such-image' }), NotFound)
  await assert.rejects(Sandbox.create({ name: 'Not A Name!' }), (error: InvalidRequest) => error instanceof InvalidRequest && error.code === 'invalid_argument' && error.field === 'name')
  await assert.rejects(Sandbox.connect('..'), (error: InvalidRequest) => error instanceof InvalidRequest && error.field === 'id')
  await using twin = await Sandbox.create({ name: 'twin' })
  await assert.rejects(Sandbox.create({ name: twin.name }), (error: Conflict) => error instanceof Conflict && error.code === 'name_taken' && error.remedy !== undefined)
})

test('destroy twice is an error that says so, and what ends a block is not', async () => {
  const sandbox = await Sandbox.create()
  await sandbox.destroy()
  assert.equal(sandbox.state, 'destroyed')
  await assert.rejects(sandbox.destroy(), NotFound)
  await sandbox[Symbol.asyncDispose]()
})

test('children have files, memory and processes, and go their own way', async () => {
  await base.runCode('state = {"n": 1}')
  await base.files.write('/srv/shared', 'from the parent')
  await using children = await base.fork(3, { metadata: { kind: 'try' } })
  assert.equal(children.length, 3)
  assert.ok(children.pauseMs > 0 && children.returnMs > 0)
  await Promise.all(children.map((child, at) => child.runCode(`state["n"] += ${at}`)))
  const values = await Promise.all([base, ...children].map(async (one) => (await one.runCode('state["n"]')).value))
  assert.deepEqual(values, [1, 1, 2, 3])
  assert.equal(await children[2]?.files.read('/srv/shared'), 'from the parent')
  assert.deepEqual((await Sandbox.list({ parent: base.id })).map((child) => child.id).sort(), children.map((child) => child.id).sort())
  const tree = drawTree(await base.tree())
  assert.equal(tree.split('\n').length, 4)
  assert.match(tree, /^sbx_\w+ running\n├─ sbx_\w+ running/)
})

test('children that fail are in the error, or among the errors of the result', async () => {
  await using taken = await Sandbox.create({ name: 'taken' })
  assert.ok(taken.id)
  const asked = base.fork({ names: ['free', 'taken'] })
  const outcome = await asked.then(
    (all) => ({ all }),
    (error: unknown) => ({ error }),
  )
  // A name that is taken refuses the whole fork, and a child that fails on its own is reported.
  const error = (outcome as { error: unknown }).error
  if (error instanceof ForkError) await Promise.all((error.children as Sandbox[]).map((child) => child.destroy()))
  assert.ok(error instanceof ForkError || error instanceof Conflict)
  await assert.rejects(base.fork(0 as number), InvalidRequest)
})

test('a promoted child gives its state to its parent', async () => {
  await using parent = await Sandbox.create()
  await parent.runCode('x = 1')
  await using children = await parent.fork(2)
  await children[1]?.runCode('x = 42')
  await children[1]?.files.write('/root/winner', 'yes')
  const before = parent.id
  await parent.promote(children[1] as Sandbox)
  assert.equal(parent.id, before)
  assert.equal((await parent.runCode('x')).value, 42)
  assert.equal(await parent.files.read('/root/winner'), 'yes')
  await assert.rejects((children[1] as Sandbox).info(), NotFound)
  await assert.rejects(parent.promote(base), (error: InvalidRequest) => error instanceof InvalidRequest && error.field === 'child')
})

test('snapshots are restored, rolled back to and deleted', async () => {
  await using sandbox = await Sandbox.create()
  await sandbox.runCode('x = "before"')
  await assert.rejects(sandbox.rollback(), NotFound)
  const snapshot = await sandbox.snapshot({ name: 'point', metadata: { job: '7' } })
  assert.equal(snapshot.state, 'ready')
  await sandbox.runCode('x = "after"')
  await using restored = await snapshot.restore(2)
  for (const one of restored) assert.equal((await one.runCode('x')).value, 'before')
  await using single = await Sandbox.restore('point', { name: 'single' })
  assert.equal(single.name, 'single')
  assert.deepEqual((await connect().snapshots({ metadata: { job: '7' } })).map((found) => found.id), [snapshot.id])
  await sandbox.rollback()
  assert.equal((await sandbox.runCode('x')).value, 'before')
  await connect().deleteSnapshot('point')
  await assert.rejects(snapshot.info(), NotFound)
})

test('diff and merge tell what differs', async () => {
  await using parent = await Sandbox.create()
  await parent.files.write('/srv/text', 'a\nb\nc\n')
  await using pair = await parent.fork(2)
  const [left, right] = pair as unknown as [Sandbox, Sandbox]
  await left.files.write('/srv/text', 'A\nb\nc\n')
  await right.files.write('/srv/new', 'new')
  await left.runCode('only_left = 5')
  const diff = await left.diff(right, { paths: ['/srv'], hunks: true, processes: true, variables: true })
  assert.deepEqual(diff.changes.map((change) => [change.kind, change.path]), [['added', '/srv/new'], ['modified', '/srv/text']])
  assert.match(diff.changes[1]?.hunks ?? '', /^-A$/m)
  assert.deepEqual(diff.variables?.map((variable) => [variable.kind, variable.name]), [['deleted', 'only_left']])
  const merged = await parent.merge([left, right])
  assert.deepEqual(merged.applied.map((change) => change.path).filter((path) => path.startsWith('/srv')).sort(), ['/srv/new', '/srv/text'])
  assert.deepEqual(merged.conflicts, [])
  assert.equal(await parent.files.read('/srv/text'), 'A\nb\nc\n')
})

test('pause, hibernate, wake and resume change the state', async () => {
  await using sandbox = await Sandbox.create()
  await sandbox.runCode('x = 7')
  assert.equal((await sandbox.pause()).state, 'paused')
  await assert.rejects(sandbox.exec('true'), (error: Conflict) => error instanceof Conflict && error.code === 'wrong_state')
  assert.equal((await sandbox.resume()).state, 'running')
  assert.equal((await sandbox.hibernate()).state, 'hibernated')
  assert.equal((await sandbox.resume()).state, 'running')
  await sandbox.hibernate()
  assert.equal((await sandbox.wake()).state, 'running')
  assert.equal((await sandbox.runCode('x')).value, 7)
})

test('the timeline has steps, to which a sandbox returns, and bisect finds the bad one', async () => {
  await using sandbox = await Sandbox.create({ autoCheckpoint: 10 })
  for (const n of [1, 2, 3, 4]) await sandbox.exec(`echo ${n} > /root/n`)
  let steps = await sandbox.timeline()
  await eventually('all steps can be returned to', async () => {
    steps = await sandbox.timeline()
    return steps.length === 5 && steps.every((step) => step.state === 'ready' || step.state === 'uploading')
  })
  const found = await sandbox.bisect('test "$(cat /root/n 2>/dev/null || echo 0)" -lt 3')
  assert.equal(found.first?.step, 3)
  await sandbox.rollback({ step: 2 })
  assert.equal(await sandbox.files.read('/root/n'), '2\n')
})

test('events are listed and followed', async () => {
  await using sandbox = await Sandbox.create()
  await sandbox.exec('true')
  const kinds: (string | undefined)[] = []
  for await (const event of sandbox.events()) kinds.push(event.kind)
  assert.deepEqual(kinds, ['created', 'executed'])
  const followed: SandboxEvent[] = []
  const reading = (async () => {
    for await (const event of sandbox.events({ follow: true, kinds: ['paused', 'resumed', 'destroyed'] })) {
      followed.push(event)
      if (event.kind === 'resumed') break
    }
  })()
  await sandbox.pause()
  await sandbox.resume()
  await reading
  assert.deepEqual(followed.map((event) => event.kind), ['paused', 'resumed'])
  assert.equal(followed[0]?.sandboxId, sandbox.id)
})

test('a change with an idempotency key is done once', async () => {
  const idempotencyKey = `key-${process.pid}`
  const first = await Sandbox.create({ idempotencyKey })
  await using second = await Sandbox.create({ idempotencyKey })
  assert.equal(first.id, second.id)
})

test('200 calls at once are answered', async () => {
  const answers = await Promise.all(Array.from({ length: 200 }, (_, at) => base.exec(['echo', String(at)])))
  assert.deepEqual(answers.map((answer) => answer.stdout.trim()), Array.from({ length: 200 }, (_, at) => String(at)))
})

test('objects are shown and stored as what they describe, without credentials', async () => {
  await using children = await base.fork()
  const child = children[0] as Sandbox
  const snapshot = await child.snapshot({ memory: true })
  const started = await child.exec('sleep 1000', { background: true })
  await using terminal = await child.pty({ command: ['cat'] })
  const begun = await child.explore({ command: 'true', keep: 'none' }, { wait: false })
  await child.runCode('1')
  const context = (await child.contexts.list())[0]
  const stored = JSON.parse(JSON.stringify({ children, snapshot, started, terminal, begun, context, port: child.port(80), files: child.files, client: child.client })) as Record<string, Record<string, unknown>>
  assert.equal((stored['children'] as unknown as { id: string }[])[0]?.id, child.id)
  assert.deepEqual([stored['snapshot']?.['id'], stored['started']?.['pid'], stored['terminal']?.['pid'], stored['begun']?.['id']], [snapshot.id, started.pid, terminal.pid, begun.id])
  assert.deepEqual([stored['context']?.['language'], stored['port'], stored['client']], ['python', { sandbox: child.id, port: 80 }, { host: `unix:${process.env['XDG_RUNTIME_DIR']}/ramet/ramet.sock` }])
  await begun.remove()
  await snapshot.delete()
  const far = connect({ host: 'https://ramet.example.org', token: 'ramet_secret' })
  for (const shown of [far, far.images]) {
    assert.doesNotMatch(JSON.stringify(shown) + inspect(shown, { depth: 9 }), /ramet_secret/)
  }
  far.close()
})

test('stats and health are numbers', async () => {
  const stats = await base.stats()
  assert.ok(stats.processes > 0 && stats.memory.privateMib > 0)
  const health = await base.client.health()
  assert.equal(health.status, 'ok')
  assert.ok(health.pid > 1 && health.version !== '')
})

test('the network of a sandbox is asked for, set and tested', async () => {
  await using sandbox = await Sandbox.create({ network: { allow: ['example.org:443'], rules: { 'api.example.org': { methods: ['GET'] } } } })
  const policy = (await sandbox.info()).network
  assert.deepEqual(policy?.allow, ['example.org:443'])
  assert.deepEqual(await sandbox.network.test('example.com', 443).then((result) => result.allowed), false)
  assert.equal((await sandbox.network.test('example.org', 443)).allowed, true)
  const set = await sandbox.network.set({ allow: ['example.com:443'], limits: { dns_per_s: 5 } })
  assert.deepEqual([set.allow, set.limits?.dns_per_s], [['example.com:443'], 5])
  assert.deepEqual((await sandbox.network.get()).allow, ['example.com:443'])
  const decisions = []
  for await (const decision of sandbox.network.log()) decisions.push(decision)
  assert.deepEqual(decisions, [])
  await using child = (await sandbox.fork({ network: 'none' }))[0] as Sandbox
  assert.equal((await child.network.test('example.com', 443)).allowed, false)
  assert.ok((await sandbox.client.networkProfiles()).some((profile) => profile.name === 'open'))
  await assert.rejects(sandbox.network.set('no-such-profile'), (error: RametError) => error.code === 'invalid_argument' || error.code === 'not_found')
})

test('secret variables are seen by commands only, and by children that are given them', async () => {
  await using sandbox = await Sandbox.create({ secretEnv: { TOKEN: 'hush' } })
  assert.equal((await sandbox.exec('echo $TOKEN')).stdout, 'hush\n')
  const info = await sandbox.info()
  assert.ok(!JSON.stringify(info).includes('hush'))
  assert.deepEqual(info.secretEnv, ['TOKEN'])
  await using without = await sandbox.fork()
  await using given = await sandbox.fork({ secretEnv: true })
  assert.equal((await without[0]?.exec('echo $TOKEN'))?.stdout, '\n')
  assert.equal((await given[0]?.exec('echo $TOKEN'))?.stdout, 'hush\n')
})

test('secrets are kept without telling them, and held requests are listed', async () => {
  const { secrets } = connect()
  const made = await secrets.set('llm-key', { value: 'sk-1', names: ['llm.example.com'], header: 'Authorization' })
  assert.deepEqual([made.name, made.names, made.header], ['llm-key', ['llm.example.com'], 'Authorization'])
  assert.ok(!JSON.stringify(await secrets.list()).includes('sk-1'))
  assert.deepEqual((await secrets.list()).map((secret) => secret.name), ['llm-key'])
  await secrets.remove('llm-key')
  await assert.rejects(secrets.remove('llm-key'), NotFound)
  assert.deepEqual(await base.held.list(), [])
  await assert.rejects(base.held.release('no-such-request'), (error: RametError) => ['invalid_argument', 'not_found'].includes(error.code))
})

test('children hold requests and are answered alike, also those of a snapshot', async () => {
  await using sandbox = await Sandbox.create({ network: ['api.example.org'] })
  await using children = await sandbox.fork({ hold: true, record: true })
  assert.deepEqual([await children[0]?.held.release(), await children[0]?.held.drop()], [[], []])
  await assert.rejects(sandbox.fork({ hold: 'everything' as 'writes' }), (error: InvalidRequest) => error instanceof InvalidRequest && error.field === 'hold')
  const snapshot = await sandbox.snapshot()
  await using restored = await snapshot.restore({ hold: 'writes', record: true, idleTimeout: 60_000, idleAction: 'pause' })
  assert.deepEqual(await restored[0]?.held.list(), [])
  assert.equal((await restored[0]?.info())?.lifecycle?.idleAction, 'pause')
  await snapshot.delete()
})

test('a port of the host leads to a server, with a token only', async () => {
  await using children = await base.fork()
  const sandbox = children[0] as Sandbox
  await sandbox.exec('cd /srv && echo hello > page && exec python3 -m http.server 8000', { background: true })
  const port = sandbox.port(8000)
  await port.wait()
  const token = 't'.repeat(16)
  const { hostPort } = await port.publish({ token })
  const page = `http://127.0.0.1:${hostPort}/page`
  assert.equal((await fetch(page)).status, 401)
  assert.equal(await (await fetch(page, { headers: { authorization: `Bearer ${token}`, connection: 'close' } })).text(), 'hello\n')
  assert.deepEqual((await sandbox.publishedPorts()).map((one) => [one.port, one.hostPort, one.protected]), [[8000, hostPort, true]])
  await sandbox.unpublish(hostPort)
  assert.deepEqual(await sandbox.publishedPorts(), [])
})

test('sandboxes of a lease end with their client, and are found by its owner', async () => {
  const ids: string[] = []
  let kept: Sandbox
  {
    await using client = connect({ lease: 60_000, owner: 'ci-7' })
    const left = await client.create({ metadata: { a: 'b' } })
    const [child] = await left.fork()
    assert.deepEqual([left.lastInfo.metadata, child?.lastInfo.metadata], [{ a: 'b', owner: 'ci-7' }, { a: 'b', owner: 'ci-7' }])
    assert.equal((await left.info()).lifecycle?.ttlMs, 60_000)
    kept = (await client.create()).detach()
    ids.push(left.id, child?.id as string)
    assert.deepEqual((await Sandbox.list({ owner: 'ci-7' })).map((one) => one.id).sort(), [...ids, kept.id].sort())
    await using own = await client.create({ ttl: 120_000 })
    assert.equal((await own.info()).lifecycle?.ttlMs, 120_000)
  }
  for (const id of ids) await assert.rejects(Sandbox.connect(id), NotFound)
  assert.equal((await kept.info()).lifecycle?.ttlMs, undefined)
  await kept.destroy()
  assert.throws(() => connect({ lease: 10 }), (error: InvalidRequest) => error.field === 'lease')
})

test('a lease is renewed, and over when nobody renews it', async () => {
  const client = connect({ lease: 10_000 })
  const sandbox = await client.create()
  const begun = (await sandbox.info()).lifecycle?.expiresAt as string
  await eventually('it is renewed', async () => ((await Sandbox.connect(sandbox.id)).lastInfo.lifecycle?.expiresAt as string) > begun)
  client.close()
  await eventually('it is gone', async () => (await Sandbox.list()).every((one) => one.id !== sandbox.id))
})

test('the words of other systems are known', async () => {
  const sandbox = await Sandbox.create()
  assert.equal((await sandbox.commands.run('echo hi')).stdout, 'hi\n')
  const [child] = await sandbox.fork()
  await sandbox.mergeInto(child as Sandbox)
  await sandbox.kill()
  await assert.rejects(sandbox.close(), NotFound)
})

test('volumes are shared', async () => {
  await using client = connect()
  const made = await client.volumes.create('sdk-data', { size: '64MiB' })
  assert.equal((await client.volumes.get('sdk-data')).id, made.id)
  {
    await using one = await Sandbox.create({ volumes: { '/mnt/data': 'sdk-data' } })
    await using two = await Sandbox.create({ volumes: { '/d': 'sdk-data:ro' } })
    await one.files.write('/mnt/data/a', 'shared')
    assert.equal(await two.files.read('/d/a'), 'shared')
    assert.equal((await two.exec('touch /d/b')).ok, false)
    await assert.rejects(client.volumes.remove('sdk-data'), Conflict)
  }
  await assert.rejects(Sandbox.create({ volumes: { '/d': 'sdk-data:rx' } }), (error: InvalidRequest) => error instanceof InvalidRequest && error.field === 'volumes')
  await client.volumes.remove('sdk-data')
  await assert.rejects(client.volumes.get('sdk-data'), NotFound)
})
