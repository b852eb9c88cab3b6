package measure

import (
	"flag"
	"fmt"
	"os"
	"time"
)

// Command is the main function of a command that measures and writes what it has
// found into a section of a document. With -short it does one short round and only
// prints.
type Command struct {
	Document, Section string
	Rounds            int
	Spell             time.Duration // of each measurement of a round
	// Tables measures and renders.
	Tables func(rounds int, spell time.Duration) (string, error)
}

// Main runs c and ends the process if it fails.
func (c Command) Main() {
	short := flag.Bool("short", false, "measure little, and only print")
	flag.Parse()
	if err := c.run(*short); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (c Command) run(short bool) error {
	machine := Machine()
	if short {
		c.Rounds, c.Spell = 1, time.Millisecond
	}
	tables, err := c.Tables(c.Rounds, c.Spell)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("\n%s\nMedians of %d rounds of %v. %s.\n\n", tables, c.Rounds, c.Spell, machine)
	fmt.Print(text)
	if short {
		return nil
	}
	return Rewrite(c.Document, c.Section, text)
}
