// Package browsertest runs the example with -report and looks at the page in Chromium: at what is rendered, not at what is
// written. It is a module of its own, so that what drives the browser reaches nobody who uses the library.
//
// Its tests have the build tag browser: go test alone runs none of them, and needs no Chromium. make test-browser runs all.
//
// What is looked at is in observe.js and view_test.go, what has to be so in checks_test.go, and that each check finds what
// it is for in broken_test.go.
package browsertest
