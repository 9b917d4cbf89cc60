package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/flashdecode/flashdecode/internal/testkit"
)

var sample = Chart{
	Title: `<model> & "co"`, XLabel: "tokens", YLabel: "tokens/s",
	Series: []Series{
		{"none", []Point{{0, 100, 5}, {4096, 60, 0}, {8192, 30, 0}}},
		{"auto", []Point{{0, 100, 0}, {4096, 90, 0}, {8192, 80, 0}}},
		{"alone", []Point{{2048, 10, 0}}},
	},
}

func TestSVG(t *testing.T) {
	var b bytes.Buffer
	if err := sample.SVG(&b); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(b.Bytes()))
	circles, texts := 0, ""
	for {
		tok, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			if tok.Name.Local == "circle" {
				circles++
			}
		case xml.CharData:
			texts += string(tok) + "|"
		}
	}
	if circles != 7 || !strings.Contains(texts, sample.Title) || !strings.Contains(texts, "8k") {
		t.Errorf("%d points; texts %s", circles, texts)
	}
	// 0 and 100 are the corners: x from 70 to 700, and y from 370 (0) to 40 (120, the tick above 105).
	if s := b.String(); !strings.Contains(s, `<circle cx="70.0" cy="95.0"`) {
		t.Errorf("the first point is elsewhere:\n%s", s)
	}
}

func TestText(t *testing.T) { testkit.Golden(t, "text.txt", []byte(sample.Text())) }

func TestEmpty(t *testing.T) {
	for _, c := range []Chart{{}, {Series: []Series{{"x", nil}}}, {Series: []Series{{"x", []Point{{0, 0, 0}}}}}} {
		if c.Text() == "" || c.SVG(io.Discard) != nil {
			t.Errorf("%+v", c)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, top := range []float64{1e-9, 0.3, 1, 7, 99.9, 100, 101, 4096, 1e9} {
		got := ticks(top, 6)
		if n := len(got); n < 3 || n > 7 || got[0] != 0 || got[n-1] < top*(1-1e-6) || got[n-2] >= top {
			t.Errorf("%v: %v", top, got)
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestWriteError(t *testing.T) {
	if sample.SVG(broken{}) == nil {
		t.Error("no error")
	}
}
