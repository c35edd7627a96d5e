//go:build browser

package browsertest

import (
	"bytes"
	"context"
	"flag"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
)

// shots is where make pictures has the pictures of a page: report.png, from the top to the end of the chats,
// and waterfall.png.
var shots = flag.String("pictures", "", "take the pictures of a whole run into this `directory`")

// A picture of the repository has few bytes.
func TestPictures_areSmall(t *testing.T) {
	dir, args := *shots, []string{"-chaos"}
	if dir == "" {
		dir, args = t.TempDir(), []string{"-turns", "5", "-sessions", "1"}
	}
	file := put(t, example(t, args...))
	tab, cancel := context.WithTimeout(browser(t), limit)
	defer cancel()
	const width = 1000 // of the window, in CSS pixels
	if err := chromedp.Do(tab, chromedp.EmulateViewport(width, 800), themed("light"), chromedp.Navigate("file://"+file)); err != nil {
		t.Fatal(err)
	}
	const bottom = `(document.documentElement.style.overflow = "hidden", // no scroll bar
		document.querySelector("main > section").getBoundingClientRect().bottom)`
	chats, err := chromedp.Run(tab, chromedp.Evaluate[float64](bottom))
	if err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(tab, chromedp.EmulateViewport(width, int64(chats)+16)); err != nil {
		t.Fatal(err)
	}
	report, err := chromedp.Run(tab, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	waterfall, err := chromedp.Run(tab, chromedp.Screenshot(`section[aria-labelledby="spans"]`))
	if err != nil {
		t.Fatal(err)
	}
	for name, shot := range map[string][]byte{"report.png": report, "waterfall.png": waterfall} {
		small := reduced(t, shot)
		if len(small) > 300_000 {
			t.Errorf("%s has %d bytes, want 300,000 at most", name, len(small))
		}
		if err := os.WriteFile(filepath.Join(dir, name), small, 0o644); err != nil {
			t.Error(err)
		}
	}
}

// reduced is a picture with its 256 most frequent colours, in a third of the bytes.
func reduced(t *testing.T, shot []byte) []byte {
	t.Helper()
	drawn, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatal(err)
	}
	area := drawn.Bounds()
	count := map[color.Color]int{}
	for y := range area.Dy() {
		for x := range area.Dx() {
			count[drawn.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return count[b] - count[a] })
	few := image.NewPaletted(area, colours[:min(256, len(colours))])
	draw.Draw(few, area, drawn, area.Min, draw.Src)
	var small bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, few); err != nil {
		t.Fatal(err)
	}
	return small.Bytes()
}
