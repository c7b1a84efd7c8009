import type { TreeNode } from './models.js'

/** Draws a lineage as text, a line for each sandbox and snapshot. */
export function drawTree(nodes: TreeNode | readonly TreeNode[] | undefined): string {
  const lines: string[] = []
  const draw = (node: TreeNode, first: string, rest: string): void => {
    const label = node.name || node.label
    lines.push(`${first}${node.id}${label ? ` ${label}` : ''} ${node.kind === 'snapshot' ? 'snapshot, ' : ''}${node.state}`)
    const children = node.children ?? []
    for (const [at, child] of children.entries()) {
      const last = at === children.length - 1
      draw(child, `${rest}${last ? '└─ ' : '├─ '}`, `${rest}${last ? '   ' : '│  '}`)
    }
  }
  for (const node of nodes === undefined ? [] : 'id' in nodes ? [nodes] : nodes) draw(node, '', '')
  return lines.join('\n')
}
