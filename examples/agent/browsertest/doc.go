// Package browsertest looks at the page of -report in Chromium, and uses the page of
// examples/beluga: make test-browser. It is a module of its own, with the build tag browser, so other
// tests need no browser.
package browsertest
