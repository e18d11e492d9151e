package strategy

import (
	"strings"
	"testing"

	"flashsale/model"
)

// TestEveryStrategyHasALesson that is complete, since the lab's report prints it.
func TestEveryStrategyHasALesson(t *testing.T) {
	for _, name := range Names() {
		l := LessonOf(name)
		if first, _, _ := strings.Cut(l.How, " "); !strings.EqualFold(first, name) {
			t.Errorf("%s: the lesson begins with %q", name, first)
		}
		for part, text := range map[string]string{"how": l.How, "right": l.Right, "breaks": l.Breaks, "costs": l.Costs} {
			if text != strings.TrimSpace(text) || !strings.HasSuffix(text, ".") || strings.Contains(text, "  ") {
				t.Errorf("%s: %s is incomplete: %q", name, part, text)
			}
		}
	}
	if l := LessonOf("lottery"); l != (model.Lesson{}) {
		t.Errorf("what is no strategy has the lesson %+v", l)
	}
}
