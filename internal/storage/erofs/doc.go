// Package erofs writes and reads read-only EROFS images, the root file systems
// of sandboxes.
//
// A Tree holds the metadata of a file system and takes entries in any order, as archives
// have them. A Writer streams file contents to the image while they arrive and writes the
// metadata behind them when the tree is complete, so an image is made in one pass and only
// metadata is held in memory. The same input gives the same bytes.
//
// The images use the part of the format that gVisor's reader accepts: blocks of
// 4096 bytes, extended inodes, no compression. They use one part more: extended attributes,
// which stand behind their inode and are never shared. gVisor's reader refuses inodes that
// have some. Contents of regular files are never inlined behind their inode, so that they can
// be mapped; directories and symbolic links are, where they fit.
//
// On-disk layout: block 0 holds the superblock; then the contents of files, each
// beginning on a block boundary; then the leading blocks of directories that do
// not fit behind their inode; then the metadata area, whose first inode is the
// root's.
//
// A Reader reads such an image in memory. It takes the images of a Writer, and those of
// mkfs.erofs -E noinline_data with the same features, which have compact inodes and metadata
// from block 0 on. It trusts no image.
//
// The package must never know what an archive, a layer format or an image store is.
package erofs
