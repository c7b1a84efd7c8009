// Package skills has what teaches coding agents to use the command line: a directory for each skill, in the
// form of Agent Skills, whose SKILL.md is the page that an agent reads.
//
// The package must never know what is done with the pages.
package skills
