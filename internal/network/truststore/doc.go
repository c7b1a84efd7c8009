// Package truststore says how programs in a sandbox come to trust certificates besides those
// of their image: that of the authority of the sandbox's tree, and those of authorities that
// only this host knows.
//
// Programs look in different places: bundles of PEM, a directory that OpenSSL searches by
// digests of names, Java's key stores, and files that variables of the environment name.
// Plan looks at the files of a sandbox and returns those to write and the variables to set;
// what is there already is left as it is, so that a plan that was carried out is empty.
//
// The package must never write a file itself, nor know why an authority is trusted.
package truststore
