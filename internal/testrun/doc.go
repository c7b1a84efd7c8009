// Command testrun runs the tests of the repository: go vet, all packages, the suites with real
// sandboxes as root and as an ordinary user, and the tests of the SDKs.
//
// Each part of the run is a job. Jobs run side by side, the longest first, and large suites are
// split into several jobs by the recorded times of their tests. A supervisor process owns the
// processes of a job: it ends them with the job and reports what the job left behind.
//
// A test that fails runs once more alone after all jobs. If it passes then, the run passes and
// ends with FLAKY and both outputs. A name that is flaky twice fails.
//
// The command knows processes, packages and names of tests. It must never know what a test
// does: no test is skipped, bounded or weakened here.
package main
