package chat

import (
	"fmt"
	"strings"
	"time"
)

// strftime formats as Python's datetime.strftime in the C locale; "%-" drops the padding. Unknown codes stay.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		bare := format[i] == '-' && i+1 < len(format)
		if bare {
			i++
		}
		s, ok := strftimeCode(t, format[i])
		if !ok {
			b.WriteByte('%')
			if bare {
				b.WriteByte('-')
			}
			b.WriteByte(format[i])
			continue
		}
		if bare && len(s) > 1 {
			s = strings.TrimLeft(s[:len(s)-1], "0 ") + s[len(s)-1:]
		}
		b.WriteString(s)
	}
	return b.String()
}

func strftimeCode(t time.Time, code byte) (string, bool) {
	layouts := map[byte]string{
		'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
		'B': "January", 'b': "Jan", 'h': "Jan", 'A': "Monday", 'a': "Mon", 'j': "002", 'z': "-0700", 'Z': "MST",
		'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06", 'x': "01/02/06", 'X': "15:04:05",
		'c': "Mon Jan _2 15:04:05 2006",
	}
	switch code {
	case '%':
		return "%", true
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), true
	case 'u':
		return fmt.Sprint((int(t.Weekday())+6)%7 + 1), true
	case 'w':
		return fmt.Sprint(int(t.Weekday())), true
	}
	layout, ok := layouts[code]
	return t.Format(layout), ok
}
