package report

import (
	"fmt"

	"github.com/belugalock/belugalock/internal/test/conversation"
)

// Headline says the result in one sentence.
func (c *Comparison) Headline() string {
	if c.NoLock.Count()+c.SaveOnly.Count()+c.WholeTurn.Count() == 0 {
		return "Nothing went wrong in any of the three runs."
	}
	return fmt.Sprintf("Without a lock %d of %d messages went wrong, with a lock around Save alone %s, and with a lock around the whole turn %s.",
		c.NoLock.Count(), c.NoLock.Messages, count(c.SaveOnly.Count()), count(c.WholeTurn.Count()))
}

func count(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}

// Story explains the result: one paragraph for each run, and one about chaos. It leaves out what
// did not happen.
func (c *Comparison) Story() (paragraphs []string) {
	if c.NoLock.Count() == 0 {
		paragraphs = append(paragraphs, "Without a lock nothing went wrong this time: the instances hardly met. Try more instances, or fewer conversations.")
	} else {
		paragraphs = append(paragraphs, "Without a lock, instances load the same history, answer without each other's messages, and write between each other's messages.")
	}
	if stale := c.SaveOnly.Count(conversation.Stale); stale > 0 {
		paragraphs = append(paragraphs, fmt.Sprintf("A lock around Save alone comes too late. An instance has loaded its history before it waits, "+
			"so %d of %d answers come from an outdated history.", stale, c.SaveOnly.Messages))
	}
	if c.Err() != nil {
		return paragraphs
	}
	paragraphs = append(paragraphs, "With a lock around the whole turn (load, model, save), each answer follows its question and has seen all messages before it. "+
		"The store knows a message by its ID, and stores it once even if it is delivered twice.")
	if c.Chaos.Strikes > 0 {
		paragraphs = append(paragraphs, c.chaos())
	}
	return paragraphs
}

// chaos says what chaos adds to the last run.
func (c *Comparison) chaos() string {
	node := ""
	if c.WholeTurn.Tally.Nodes > 0 {
		node = " A node of the lock was killed, too. The others are a quorum, so the lock stayed available."
	}
	return fmt.Sprintf("That holds although %d instances were killed and %d paused in the middle of a turn, for so long that their lock expired. "+
		"If another instance took over the conversation, the store refused the late write. Every message was delivered "+
		"until an instance had dealt with it.", c.WholeTurn.Tally.Kills, c.WholeTurn.Tally.Pauses) + node
}
