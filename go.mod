module github.com/flashdecode/flashdecode

go 1.26.8

require golang.org/x/sys v0.50.0

require golang.org/x/text v0.44.0

require github.com/ardanlabs/jinja v1.8.0

require (
	github.com/spf13/cobra v1.10.2
	github.com/spf13/pflag v1.0.9
)

require github.com/inconshreveable/mousetrap v1.1.0 // indirect

require github.com/ebitengine/purego v0.11.3
