package strategy

import (
	"strings"
	"testing"
)

// TestEveryStrategyHasALesson that is complete and has no marks of Go comments, since the lab's report prints it.
func TestEveryStrategyHasALesson(t *testing.T) {
	for _, name := range Names() {
		l := LessonOf(name)
		if first, _, _ := strings.Cut(l.How, " "); !strings.EqualFold(first, name) {
			t.Errorf("%s: the lesson begins with %q", name, first)
		}
		for part, text := range map[string]string{"how": l.How, "right": l.Right, "breaks": l.Breaks, "costs": l.Costs} {
			if text != strings.TrimSpace(text) || !strings.HasSuffix(text, ".") {
				t.Errorf("%s: %s is incomplete: %q", name, part, text)
			}
			for _, mark := range []string{"//", "\n", "  ", "Right: ", "Breaks: ", "Costs: "} {
				if strings.Contains(text, mark) {
					t.Errorf("%s: %s contains %q: %q", name, part, mark, text)
				}
			}
		}
	}
	for _, name := range []string{"", "lottery", "registry", "../strategy/naive"} {
		if l := LessonOf(name); l != (Lesson{}) {
			t.Errorf("%q, which is no strategy, has the lesson %+v", name, l)
		}
	}
}
