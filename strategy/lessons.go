package strategy

import "strings"

// Lesson is the doc comment of a strategy, in four parts.
type Lesson struct {
	How    string // how it takes a unit
	Right  string // when it is correct, and why
	Breaks string // when it fails
	Costs  string
}

// LessonOf returns the lesson of a strategy. It reads the embedded source file of the strategy, and returns an empty
// Lesson for an unknown name.
func LessonOf(name string) (l Lesson) {
	source, err := sources.ReadFile(name + ".go")
	if err != nil {
		return l
	}
	part := &l.How
	for line := range strings.Lines(comment(string(source))) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "//"))
		for word, next := range map[string]*string{"Right: ": &l.Right, "Breaks: ": &l.Breaks, "Costs: ": &l.Costs} {
			if rest, ok := strings.CutPrefix(line, word); ok {
				line, part = rest, next
			}
		}
		*part = strings.TrimSpace(*part + " " + line)
	}
	return l
}

// comment returns the doc comment of a strategy's type: the comment that contains the first "// Right:" of the
// source.
func comment(source string) string {
	before, after, _ := strings.Cut(source, "// Right:")
	before = before[strings.LastIndex(before, "\n\n")+2:]
	after, _, _ = strings.Cut(after, "\ntype ")
	return before + "// Right:" + after
}
