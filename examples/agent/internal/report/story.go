package report

import (
	"fmt"

	"github.com/belugalock/belugalock/internal/test/conversation"
)

// Headline says the result in one sentence.
func (c *Comparison) Headline() string {
	return fmt.Sprintf("Without a lock %d of %d messages went wrong, with a lock around Save alone %d, and with a lock around the whole turn %d.",
		c.Runs[0].Count(), c.Runs[0].Messages, c.Runs[1].Count(), c.Runs[2].Count())
}

// Story explains the result: one paragraph for each run, and one about chaos. It leaves out what
// did not happen.
func (c *Comparison) Story() (paragraphs []string) {
	if c.Runs[0].Count() == 0 {
		paragraphs = append(paragraphs, "Without a lock nothing went wrong this time: the instances hardly met. Try more instances, or fewer conversations.")
	} else {
		paragraphs = append(paragraphs, "Without a lock, instances load the same history, answer without each other's messages, and write between each other's messages.")
	}
	if stale := c.Runs[1].Count(conversation.Stale); stale > 0 {
		paragraphs = append(paragraphs, fmt.Sprintf("A lock around Save alone comes too late. An instance has loaded its history before it waits, "+
			"so %d of %d answers come from an outdated history.", stale, c.Runs[1].Messages))
	}
	if c.Err() != nil {
		return paragraphs
	}
	paragraphs = append(paragraphs, "With a lock around the whole turn (load, model, save), each answer follows its question and has seen all messages before it. "+
		"The store knows a message by its ID, and stores it once even if it is delivered twice. "+
		"The turns of one conversation run one after another, which takes longer.")
	if c.Chaos {
		paragraphs = append(paragraphs, fmt.Sprintf("That holds although %d instances were killed and %d paused in the middle of a turn, for so long that their lock expired. "+
			"If another instance took over the conversation, the store refused the late write. Every message was delivered "+
			"until an instance had dealt with it.", c.Runs[2].Kills, c.Runs[2].Pauses))
	}
	return paragraphs
}
