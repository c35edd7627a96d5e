//go:build browser

package browsertest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
)

// beluga starts examples/beluga, on the stand-in for Beluga, and returns the address of its page.
func beluga(t *testing.T) (address string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "beluga")
	workspace, _ := filepath.Abs("../../../contract.work") // fails as the build
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir, build.Stderr, build.Env = "../../beluga", os.Stderr, append(os.Environ(), "GOWORK="+workspace)
	if err := build.Run(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-listen", "127.0.0.1:0", "-model-delay", "200ms")
	output, err := cmd.StderrPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		for lines.Scan() {
			t.Log(lines.Text())
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	for address == "" && lines.Scan() {
		_, address, _ = strings.Cut(lines.Text(), "listening on ")
	}
	return address
}

// user looks at the page of examples/beluga.
type user struct {
	*testing.T
	tab context.Context
}

func (u user) do(steps ...chromedp.Action[chromedp.Void]) {
	u.Helper()
	if err := chromedp.Do(u.tab, steps...); err != nil {
		u.Fatal(err)
	}
}

// sees waits for a value in the page.
func (u user) sees(expression string) string {
	u.Helper()
	value, err := chromedp.Run(u.tab, chromedp.Poll[string](expression))
	if err != nil {
		text, _ := chromedp.Run(u.tab, chromedp.Evaluate[string](`document.body.innerText`))
		u.Fatalf("no %s: %v\n%s", expression, err, text)
	}
	return value
}

const said = `[...document.querySelectorAll(".said")].at(-1)?.textContent`
const notes = `[...document.querySelectorAll("main .soft")].at(-1)?.textContent`

// asks sends a message, and waits for a part of its answer.
func (u user) asks(order int) (part string) {
	u.Helper()
	u.do(chromedp.SetValue(chromedp.CSS("#text"), fmt.Sprintf("Where is order %d?", order)), chromedp.Click(chromedp.CSS("#send")))
	return u.sees(fmt.Sprintf(`%s?.startsWith("Order %d") && !%[1]s.endsWith(".") && %[1]s`, said, order))
}

// stored waits until the page shows one turn of a message in the chat, and returns its answer.
func (u user) stored(order int) string {
	u.Helper()
	turns := fmt.Sprintf(`document.getElementById("stored").textContent.split("\n").filter((line) => line.startsWith("Where is order %d?"))`, order)
	_, answer, _ := strings.Cut(u.sees(turns+`.length === 1 && `+turns+`[0]`), " → ")
	return answer
}

func TestBeluga(t *testing.T) {
	chromium, address := browser(t), beluga(t)
	tab, leave := chromedp.NewContext(chromium)
	defer leave()
	if err := chromedp.Do(tab); err != nil {
		t.Fatal(err)
	}
	tab, cancel := context.WithTimeout(tab, 3*limit)
	defer cancel()
	u := user{t, tab}
	u.do(chromedp.Navigate(address))

	part := u.asks(1)
	u.sees(notes + `.startsWith("stored") && "yes"`)
	if whole := u.sees(said); !strings.HasPrefix(whole, part) || whole != u.stored(1) {
		t.Errorf("%q became %q, and %q is stored", part, whole, u.stored(1))
	}
	u.asks(2)
	u.do(chromedp.Click(chromedp.CSS("#stop")))
	u.sees(notes + `.startsWith("stopped") && "yes"`)
	if text := u.sees(said); strings.HasSuffix(text, ".") || u.stored(2) != text+" (stopped)" {
		t.Errorf("after a stop the page shows %q, and %q is stored", text, u.stored(2))
	}
	u.asks(3)
	u.do(chromedp.Click(chromedp.CSS("#kill")))
	u.sees(notes + `.includes("sent again") && "yes"`)
	u.sees(notes + `.startsWith("stored") && "yes"`)
	if text := u.sees(said); !strings.HasSuffix(text, ".") || u.stored(3) != text {
		t.Errorf("after a kill the page shows %q, and %q is stored", text, u.stored(3))
	}
	u.asks(4)
	u.do(chromedp.Reload())
	if text := u.stored(4); !strings.HasSuffix(text, ".") {
		t.Errorf("after the page was left, %q is stored", text)
	}
	for _, v := range views {
		u.do(chromedp.EmulateViewport(v.width, 900))
		u.sees(`document.documentElement.scrollWidth <= innerWidth && "fits"`)
	}
}
