package belugarunner

// Backends is backends for the tests outside of the package.
var Backends = backends
