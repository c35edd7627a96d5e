//go:build browser

package browsertest

import (
	"context"
	"regexp"
	"strings"
	"testing"
)

// policy is what forbids scripts and everything that is not in the page.
const policy = `<meta http-equiv="Content-Security-Policy"[^>]*>`

// breaks are ways to break a page. Each is a pattern and what takes its place, and names the check
// that has to find it.
var breaks = []struct {
	name, check string
	view        view
	replace     [][2]string
}{
	{"a script complains", "console", phone, [][2]string{{policy, ""}, {`</main>`, `<script>console.error("no")</script></main>`}}},
	{"a script fails", "console", phone, [][2]string{{policy, ""}, {`</main>`, `<script>missing()</script></main>`}}},
	{"a forbidden script", "console", phone, [][2]string{{`</main>`, `<script>1</script></main>`}}},
	{"a picture from a file", "network", phone, [][2]string{{policy, ""}, {`</main>`, `<img alt="" src="missing.png"></main>`}}},
	{"a style from the network", "network", phone, [][2]string{{policy, ""}, {`</head>`, `<link rel="stylesheet" href="http://127.0.0.1:1/x.css"></head>`}}},
	{"text from a script", "scripts", phone, [][2]string{{policy, ""}, {`</main>`, `<p id="x"></p><script>document.getElementById("x").append("more")</script></main>`}}},
	{"a script that does nothing", "scripts", phone, [][2]string{{policy, ""}, {`</main>`, `<script></script></main>`}}},
	{"a long line on a phone", "width", phone, [][2]string{{`overflow-wrap: anywhere`, `white-space: nowrap`}}},
	{"a wide block on a screen", "width", screen, [][2]string{{`<main>`, `<main style="min-width: 1300px">`}}},
	{"text that is cut off", "width", phone, [][2]string{{`<main>`, `<main style="overflow: hidden"><p style="white-space: nowrap">A line that is by far too long for a phone, cut off at its edge.</p>`}}},
	{"no dark theme", "theme", night, [][2]string{{`prefers-color-scheme: dark`, `prefers-color-scheme: none`}}},
	{"pale text", "contrast", phone, [][2]string{{`--soft: #59636e`, `--soft: #8c959f`}}},
	{"pale text in the dark", "contrast", night, [][2]string{{`--soft: #9aa4af`, `--soft: #6e7681`}}},
	{"pale text in a picture", "contrast", night, [][2]string{{`svg text { fill: var\(--text\)`, `svg text { fill: #6e7681`}}},
	{"pale bars", "contrast", phone, [][2]string{{`\.work { fill: var\(--work\)`, `.work { fill: #ccddee`}}},
	{"pale waits", "contrast", phone, [][2]string{{`\.wait { fill: var\(--wait\)`, `.wait { fill: #ffe2c6`}}},
	{"pale marks", "contrast", night, [][2]string{{`--bad: #ff9187`, `--bad: #b42318`}}},
	{"a level is skipped", "structure", phone, [][2]string{{`<h2 id="spans">(.*?)</h2>`, `<h4 id="spans">$1</h4>`}}},
	{"a part is missing", "structure", phone, [][2]string{{`(?s)<section aria-labelledby="spans">.*?</section>`, ``}}},
	{"the end is missing", "structure", phone, [][2]string{{`(?s)<footer>.*</footer>`, ``}}},
	{"a table without caption", "structure", phone, [][2]string{{`<caption>.*?</caption>`, ``}}},
	{"a head without scope", "structure", phone, [][2]string{{`<th scope="row">messages`, `<th>messages`}}},
	{"headings that cannot be seen", "structure", phone, [][2]string{{`h2 { font-size: 1.3rem`, `h2 { font-size: 0`}}},
	{"no language", "structure", phone, [][2]string{{` lang="en"`, ``}}},
	{"another headline", "headline", phone, [][2]string{{`<h1>Without a lock \d+`, `<h1>Without a lock 7`}}},
	{"another card", "headline", phone, [][2]string{{`(<span class="run">Save only</span> <strong class="bad">)\d+`, `${1}9999`}}},
	{"a card is missing", "headline", phone, [][2]string{{`<p class="verdict"><span class="run">whole turn.*?</p>`, ``}}},
	{"a mark without a word", "chats", phone, [][2]string{{`<strong>(stale|torn|doubled)</strong>`, `<strong></strong>`}}},
	{"a mark that cannot be seen", "chats", phone, [][2]string{{`\.mark strong {`, `.mark strong { display: none;`}}},
	{"a wrong message without colour", "chats", phone, [][2]string{{`\.chat \.wrong {`, `.chat .nothing {`}}},
	{"a mark in the last run", "chats", phone, [][2]string{{`(?s)(id="chat-2".*?Your order has \d+ books\.</span>)`, `${1} <span class="mark"><strong>stale</strong> saw nothing</span>`}}},
	{"another kind of mark", "chats", phone, [][2]string{{`<strong>(stale|torn|doubled)</strong>`, `<strong>wrong</strong>`}}},
	{"another number of marks", "chats", phone, [][2]string{{`\d+ wrong</span>`, `99 wrong</span>`}}},
	{"another number of books", "chats", phone, [][2]string{{`(?s)(id="chat-2".*Your order has )\d+`, `${1}99999`}}},
	{"a chat is missing", "chats", phone, [][2]string{{`(?s)<section class="chat" id="chat-1".*?</section>`, ``}}},
	{"a chat cannot be seen", "chats", screen, [][2]string{{`class="chat" id="chat-1"`, `class="chat" id="chat-1" hidden`}}},
	{"a wrong figure", "table", phone, [][2]string{{`(<th scope="row">messages of users</th><td>)\d+`, `${1}7`}}},
	{"a row is missing", "table", phone, [][2]string{{`<tr><th scope="row">stale <small>answered.*?</tr>`, ``}}},
	{"a row cannot be seen", "table", phone, [][2]string{{`<tr><th scope="row">stale`, `<tr hidden><th scope="row">stale`}}},
	{"a sentence is missing", "table", phone, [][2]string{{`<p>Without a lock, instances`, `<p>Without a lock, some instances`}}},
	{"a span is missing", "waterfall", phone, [][2]string{{`<text x="0" y="\d+" dy="15">model.*?</text>`, ``}}},
	{"a bar is missing", "waterfall", phone, [][2]string{{`<rect class="bar wait".*?/>`, ``}}},
	{"another duration", "waterfall", phone, [][2]string{{`(>model <tspan class="soft">)[\d.]+`, `${1}9999.9`}}},
	{"no link", "waterfall", phone, [][2]string{{`(?s)(id="waterfall".*?)<line class="link".*?>`, `${1}`}}},
	{"a link to nowhere", "waterfall", phone, [][2]string{{`(?s)(id="waterfall".*?<line class="link".*? y1=")\d+`, `${1}230`}}},
	{"a bar outside", "pictures", phone, [][2]string{{`(<rect class="bar wait" x=")[\d.]+`, `${1}99.5`}}},
	{"a bar above", "pictures", phone, [][2]string{{`(<rect class="bar work" .*? y=")[\d.]+`, `${1}-50`}}},
	{"a bar without width", "pictures", phone, [][2]string{{`(<rect class="bar .*? width=")[\d.]+%`, `${1}0`}}},
	{"a picture without height", "pictures", phone, [][2]string{{`aria-labelledby="waterfall-title waterfall-desc" height="\d+"`, `aria-labelledby="waterfall-title waterfall-desc" height="0"`}}},
	{"a picture without description", "pictures", phone, [][2]string{{`<desc id="waterfall-desc">.*?</desc>`, ``}}},
	{"a label outside", "pictures", phone, [][2]string{{`<text class="lane" x="0"`, `<text class="lane" x="98%"`}}},
}

var phone, screen, night = view{360, "light"}, view{1280, "light"}, view{360, "dark"}

// everyCheckFinds breaks a page in every way, and sees whether the checks find it.
func everyCheckFinds(t *testing.T, chromium context.Context, r *run) {
	covered := map[string]bool{}
	for _, b := range breaks {
		covered[b.check] = true
		t.Run(strings.Join([]string{b.check, b.name}, "/"), func(t *testing.T) {
			t.Parallel()
			page := r.page
			for _, change := range b.replace {
				pattern := regexp.MustCompile(change[0])
				if !pattern.MatchString(page) {
					t.Fatalf("the page has no %s to break", change[0])
				}
				page = pattern.ReplaceAllString(page, change[1])
			}
			if page == r.page {
				t.Fatal("nothing is broken")
			}
			found := checks[b.check](look(t, chromium, put(t, page), b.view), r)
			if len(found) == 0 {
				t.Fatalf("check %q finds nothing", b.check)
			}
			t.Logf("%.300s", found[0])
		})
	}
	for check := range checks {
		if !covered[check] {
			t.Errorf("nothing breaks check %q", check)
		}
	}
}
