// Command picture takes pictures of a page of examples/agent -report in headless Chromium: report.png,
// from the top of the page to the end of the chats, and waterfall.png. make pictures runs it:
//
//	go run ./picture report.html DIR
package main

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

const (
	limit    = time.Minute
	width    = 1000    // of the window, in CSS pixels
	maxBytes = 300_000 // of a picture in the repository
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: go run ./picture report.html DIR")
		os.Exit(2)
	}
	if err := take(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

// take writes the pictures of a page into dir.
func take(page, dir string) error {
	page, err := filepath.Abs(page)
	if err != nil {
		return err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.Flag("headless", "new"), chromedp.Flag("hide-scrollbars", true))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // the sandbox refuses root
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	ctx, stop := chromedp.NewExecAllocator(ctx, options...)
	defer stop()
	ctx, quit := chromedp.NewContext(ctx)
	defer quit()

	light := chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "light"}}}
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, media)
		return err
	})
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, 800), light, chromedp.Navigate("file://"+page)); err != nil {
		return err
	}
	waterfall, err := chromedp.Run(ctx, chromedp.Screenshot(`section[aria-labelledby="spans"]`))
	if err != nil {
		return err
	}
	const bottom = `(scrollTo(0, 0), document.querySelector("main > section").getBoundingClientRect().bottom)`
	chats, err := chromedp.Run(ctx, chromedp.Evaluate[float64](bottom))
	if err != nil {
		return err
	}
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, int64(chats)+16)); err != nil {
		return err
	}
	report, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		return err
	}
	for name, shot := range map[string][]byte{"report.png": report, "waterfall.png": waterfall} {
		if err := write(filepath.Join(dir, name), shot); err != nil {
			return err
		}
	}
	return nil
}

// write writes a picture with its 256 most frequent colours, in a third of the bytes.
func write(name string, shot []byte) error {
	drawn, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		return err
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
		return err
	}
	if small.Len() > maxBytes {
		return fmt.Errorf("%s has %d bytes, want %d at most", name, small.Len(), maxBytes)
	}
	return os.WriteFile(name, small.Bytes(), 0o644)
}
