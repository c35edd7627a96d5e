//go:build browser

package browsertest

import (
	"context"
	_ "embed"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

//go:embed observe.js
var observe string

// limit is how long the browser may take for a page.
const limit = 30 * time.Second

// view is a way to look at a page.
type view struct {
	width int64
	theme string // light or dark
}

func (v view) String() string { return fmt.Sprintf("%s-%d", v.theme, v.width) }

var views = []view{
	{360, "light"}, {360, "dark"}, {1280, "light"}, {1280, "dark"},
}

// observation is what is seen of a page, in CSS pixels.
type observation struct {
	view               view
	Width, ScrollWidth float64
	Wide               []string // elements that do not fit into the window
	Light              bool
	Bars               []float64 // contrasts
	Texts              []struct {
		What               string
		Contrast, X, Width float64
	}
	requests []string
	messages []string // of the console
}

// browser starts Chromium with a profile of its own, and stops it when the test ends. It can reach
// nothing but files and this machine.
func browser(t *testing.T) context.Context {
	t.Helper()
	temp, err := os.MkdirTemp("", "belugalock-browsertest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(temp) })
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.Env("TMPDIR="+temp), // Chromium leaves things there
		chromedp.Flag("headless", "new"),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
		chromedp.Flag("disable-component-update", true))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // the sandbox refuses root
	}
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, _ = chromedp.NewContext(ctx)
	started := time.AfterFunc(limit, stop)
	defer started.Stop()
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("no browser: %v", err)
	}
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("the browser did not end well: %v", err)
		}
	})
	return ctx
}

func themed(theme string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}}
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, media)
		return err
	})
}

// look opens a file in a tab of its own, and observes it.
func look(t *testing.T, browser context.Context, file string, v view) *observation {
	t.Helper()
	var mu sync.Mutex
	o := &observation{view: v}
	listen := chromedp.WithListener(func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			o.requests = append(o.requests, e.Request.URL)
		case *runtime.EventExceptionThrown:
			o.messages = append(o.messages, "exception: "+e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			o.messages = append(o.messages, fmt.Sprint("console: ", e.Type))
		case *log.EventEntryAdded:
			o.messages = append(o.messages, fmt.Sprint(e.Entry.Level, ": ", e.Entry.Text))
		}
	})
	tab, leave := chromedp.NewContext(browser, listen)
	defer leave()
	if err := chromedp.Do(tab); err != nil {
		t.Fatal(err)
	}
	tab, cancel := context.WithTimeout(tab, limit)
	defer cancel()
	address := (&url.URL{Scheme: "file", Path: file}).String()
	if err := chromedp.Do(tab, chromedp.EmulateViewport(v.width, 900), themed(v.theme), chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
		return err
	}), chromedp.Navigate(address)); err != nil {
		t.Fatal(err)
	}
	seen, err := chromedp.Run(tab, chromedp.Evaluate[observation](observe))
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	seen.view, seen.messages = v, o.messages
	for _, request := range o.requests {
		if !strings.EqualFold(request, address) {
			seen.requests = append(seen.requests, request)
		}
	}
	return &seen
}
