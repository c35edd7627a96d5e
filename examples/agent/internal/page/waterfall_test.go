package page

import "testing"

func TestWaterfall_keepsEverythingInside(t *testing.T) {
	long := turnOf("t1", "instance-1", 0, 0, 100_000)
	long = append(long, at("t1-release", "t1", "distlock.release", "instance-1", 100_000, 100_000))
	w := waterfallOf(append(long, turnOf("t2", "instance-2", 1, 100_000, 100_000, "t1")...))
	for _, l := range w.Lanes() {
		for _, b := range l.Bars {
			if b.X < 0 || b.Width < narrowest || b.X+b.Width > 1.000001 || b.Y+rowHeight > w.Height {
				t.Errorf("the bar of %s is at %s, %s wide, %d from the top", b.Name, b.X, b.Width, b.Y)
			}
		}
	}
	if w.Link < 0.4 || w.Link > 0.6 || w.From <= w.To || w.From > w.Height {
		t.Errorf("the link is at %s, from %d to %d", w.Link, w.From, w.To)
	}
}

func TestWaterfall_showsTheClearestMeeting(t *testing.T) {
	finished := turnOf("t1", "instance-1", 0, 2, 60)
	finished = append(finished, turnOf("t2", "instance-2", 10, 60, 120, "t1")...)
	finished = append(finished, turnOf("t3", "instance-3", 10, 120, 150, "t2")...) // and for t1
	finished = append(finished, turnOf("t4", "instance-4", 500, 900, 910, "gone")...)
	finished = append(finished, turnOf("t5", "instance-5", 500, 990, 995, "t1")...) // and for others
	w := waterfallOf(finished)
	if w.Holder.Instance != "instance-1" || w.Waiter.Instance != "instance-2" {
		t.Errorf("%s waits for %s", w.Waiter.Instance, w.Holder.Instance)
	}
	for i, want := range []string{"lockedmemory.answer", "distlock.acquire", "lockedmemory.save_once"} {
		if bar := w.Waiter.Bars[i]; bar.Name != want || bar.Waits != (i == 1) {
			t.Errorf("bar %d is %+v, want %s", i, bar, want)
		}
	}
}

func TestWaterfall_needsTwoTurnsThatStored(t *testing.T) {
	lost := turnOf("t1", "instance-1", 0, 2, 60)
	lost[1].Failed = true
	if waterfallOf(nil) != nil || waterfallOf(turnOf("t1", "instance-1", 0, 0, 60)) != nil ||
		waterfallOf(append(lost, turnOf("t2", "instance-2", 10, 30, 120, "t1")...)) != nil {
		t.Error("there is a picture")
	}
}
