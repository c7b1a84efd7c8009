// Package merge decides what a three-way merge of files does: which changes of one
// tree since a base come to another tree, ours, that may have changed as well.
//
// It plans and changes nothing. A Plan is made of one side after the other; later
// ones see what earlier ones bring. What comes out is Ops, which make the result of
// ours, and Conflicts.
//
// The unit is the path. Of a path that both sides changed, contents, type,
// permissions, owner and each extended attribute are decided on by themselves, and
// texts line by line. Whatever is not decided so is a conflict, and the path stays
// as ours has it, or as the strategy says. Then the tree has to be one: what is put
// somewhere needs a directory above, and a directory only goes when nothing is left
// in it (structure.go).
//
// The package must never know how trees are stored, nor what a sandbox is.
package merge
