// A node's state transition in Go, to start a node from: a second reading of spec/, and small on purpose.
//
// It executes blocks for `stampede conform` (t8n) and in a testnet (executor). README.md says what it does, what it
// answers with "unsupported", and how to go on.
package main

import (
	"flag"
	"fmt"
	"os"
)

const usage = `node-go t8n --genesis G.json --blocks B.json --out O.json [--steps]
node-go t8n --serve     one case a line: stampede conform --tool 'node-go t8n --serve' --serve
node-go executor        for a validator of a testnet: docs/executor.md`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(words []string) error {
	if len(words) == 1 && words[0] == "executor" {
		return serveExecutor(os.Stdin, os.Stdout)
	}
	if len(words) == 0 || words[0] != "t8n" {
		return fmt.Errorf("%s", usage)
	}
	flags := flag.NewFlagSet("t8n", flag.ContinueOnError)
	genesis, blocks, out := flags.String("genesis", "", "file"), flags.String("blocks", "", "file"), flags.String("out", "", "file")
	steps, isServing := flags.Bool("steps", false, "tell the steps of blocks"), flags.Bool("serve", false, "answer lines")
	if err := flags.Parse(words[1:]); err != nil {
		return err
	}
	if *isServing {
		return serve(os.Stdin, os.Stdout)
	}
	return runFiles(*genesis, *blocks, *out, *steps)
}
