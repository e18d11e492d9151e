package strategy

import "strings"

// Lesson is what a strategy's own comment says of it.
type Lesson struct {
	How    string // it takes a unit
	Right  string // when, and why
	Breaks string // when
	Costs  string
}

// LessonOf reads the comment of a strategy in the source that this program was built from; it is empty for an
// unknown name.
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

// comment is the comment on the type in a source that comes with its first "Right:".
func comment(source string) string {
	before, after, _ := strings.Cut(source, "// Right:")
	before = before[strings.LastIndex(before, "\n\n")+2:]
	after, _, _ = strings.Cut(after, "\ntype ")
	return before + "// Right:" + after
}
