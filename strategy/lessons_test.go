package strategy

import (
	"strings"
	"testing"
)

// TestEveryStrategyHasALesson, whole and in plain words, since the lab's report prints it.
func TestEveryStrategyHasALesson(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			l := LessonOf(name)
			if first, _, _ := strings.Cut(l.How, " "); !strings.EqualFold(first, name) {
				t.Errorf("what it does begins with %q: %q", first, l.How)
			}
			for part, text := range map[string]string{"how": l.How, "right": l.Right, "breaks": l.Breaks, "costs": l.Costs} {
				if text == "" {
					t.Errorf("%s is missing", part)
					continue
				}
				for _, mark := range []string{"//", "\n", "  ", "Right: ", "Breaks: ", "Costs: "} {
					if strings.Contains(text, mark) {
						t.Errorf("%s has %q in it: %q", part, mark, text)
					}
				}
				if text != strings.TrimSpace(text) || !strings.HasSuffix(text, ".") {
					t.Errorf("%s is cut off: %q", part, text)
				}
			}
		})
	}
}

func TestUnknownStrategyHasNoLesson(t *testing.T) {
	for _, name := range []string{"", "lottery", "registry", "../strategy/naive"} {
		if l := LessonOf(name); l != (Lesson{}) {
			t.Errorf("%q: %+v", name, l)
		}
	}
}
