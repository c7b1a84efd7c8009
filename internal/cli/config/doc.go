// Package config reads the configuration file of the daemon: a TOML file whose keys are the names of the flags of a
// command. Flags of the command line come before those of the file.
//
// The package must never know what a flag means: the flag itself judges its values.
package config
