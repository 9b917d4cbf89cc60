module github.com/flashdecode/flashdecode

go 1.26.8

require golang.org/x/sys v0.50.0

require golang.org/x/text v0.44.0

require github.com/ardanlabs/jinja v1.8.0
