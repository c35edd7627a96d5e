// Package browsertest runs the example with -report and looks at the page in Chromium: at what is
// rendered, not at what is written. It is a module of its own, so that what drives the browser
// reaches nobody who uses the library.
//
// Its tests have the build tag browser: go test alone runs none of them, and needs no Chromium.
// make test-browser runs all.
//
// observe.js and view_test.go say what a test sees, and checks_test.go judges it. beluga_test.go uses the page
// of examples/beluga.
package browsertest
