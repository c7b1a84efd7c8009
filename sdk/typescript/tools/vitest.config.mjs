// Vitest takes what it needs from the sandbox's own daemon: it must not look for other configuration.
export default { test: { include: ['**/*.vitest.ts'], cache: false, pool: 'threads', poolOptions: { threads: { maxThreads: 1, minThreads: 1 } } } }
