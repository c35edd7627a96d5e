package driver

import (
	"context"
	"time"
)

// NodeAnswer is the answer of one node of a quorum to one operation.
type NodeAnswer struct {
	Node   string        // its name, as host:port
	Answer string        // a word, as "granted" or "busy", or the text of an error
	Took   time.Duration // from the request to the answer
	// Nodes is the number of nodes, and Quorum how many of them have to agree.
	Nodes, Quorum int
}

type nodeAnswers struct{}

// WithNodeAnswers returns a context in which the driver of a quorum calls answered once for each
// answer of a node. The calls may be concurrent, and may come after the operation. A call returns at
// once.
func WithNodeAnswers(ctx context.Context, answered func(NodeAnswer)) context.Context {
	return context.WithValue(ctx, nodeAnswers{}, answered)
}

// NodeAnswers returns the function of WithNodeAnswers, or nil.
func NodeAnswers(ctx context.Context) func(NodeAnswer) {
	answered, _ := ctx.Value(nodeAnswers{}).(func(NodeAnswer))
	return answered
}
