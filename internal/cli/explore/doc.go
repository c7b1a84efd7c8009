// Package explore has the command explore: it makes a plan of a file and options, shows how the
// exploration goes on as a tree, and prints its table.
//
// It never judges a plan: package api does.
package explore
