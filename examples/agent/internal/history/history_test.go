package history

import "testing"

func TestAnswer_countsTheBooksOfTheHistory(t *testing.T) {
	first, second := Question(0, "a"), Question(1, "b")
	reply := Answer(nil, first)
	for want, seen := range map[string][]Message{
		"Your order has 11 books.": {first, reply},
		"Your order has 9 books.":  nil,                          // a stale answer
		"Your order has 13 books.": {first, reply, first, reply}, // after a doubled message
	} {
		if got := Answer(seen, second); got.Text != want || got.Seen != len(seen) || got.Instance != "b" {
			t.Errorf("with %d messages before it, the answer is %+v, want %q", len(seen), got, want)
		}
	}
	if first.Text != "Add 2 books to my order." || second.Text != "Add 9 books to my order." {
		t.Errorf("the questions are %q and %q", first.Text, second.Text)
	}
}
