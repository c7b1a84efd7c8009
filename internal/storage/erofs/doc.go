// Package erofs writes and reads read-only EROFS images, the root file systems
// of sandboxes.
//
// A Tree holds the metadata of a file system and takes entries in any order, as
// archives deliver them. A Writer streams file contents to the image while they
// arrive and writes the metadata behind them when the tree is complete, so an
// image is made in one pass and only metadata is held in memory. The same input
// gives the same bytes.
//
// The images use the part of the format that gVisor's reader accepts: blocks of
// 4096 bytes, extended inodes, no compression. Extended attributes stand behind
// their inode and are never shared; gVisor's reader does not know them and
// refuses the inodes that have some. Contents of regular files are never inlined
// behind their inode, because gVisor cannot map such files into memory (the guest
// gets SIGBUS); directories and symbolic links are, where they fit.
//
// On-disk layout: block 0 holds the superblock; then the contents of files, each
// beginning on a block boundary; then the leading blocks of directories that do
// not fit behind their inode; then the metadata area, whose first inode is the
// root's.
//
// A Reader gives access to such an image in memory. It takes exactly what a
// Writer makes, plus what mkfs.erofs -E noinline_data makes of the same features:
// compact inodes, metadata that begin in block 0. It trusts no image.
//
// The package must never know what an archive, a layer format or an image store
// is.
package erofs
