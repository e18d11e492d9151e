package model

import "testing"

// A colour stays as it is where texts can be read, and is changed no more than it needs where they can't.
func TestSchemes(t *testing.T) {
	for color, want := range map[string][2]string{
		"#0f6b54": {"#0f6b54", ""}, "#ffcc00": {"", "#ffcc00"}, "#000000": {"#000000", ""}, "#ffffff": {"", "#ffffff"},
	} {
		light, dark, ok := Schemes(color)
		if !ok || want[0] != "" && light.Accent != want[0] || want[1] != "" && dark.Accent != want[1] || light.Accent == dark.Accent {
			t.Errorf("%s: %+v %+v, want %q", color, light, dark, want)
		}
		if light.OnAccent != "#ffffff" || dark.OnAccent != "#131517" {
			t.Errorf("%s: texts on the colour are %s and %s", color, light.OnAccent, dark.OnAccent)
		}
	}
	for _, wrong := range []string{"", "red", "#fff", "#GGGGGG", "#+fcc00", "#0xfc00", "#ffcc00 ", " #ffcc00", "ffcc00f", "#ffcc00\n"} {
		if _, _, ok := Schemes(wrong); ok {
			t.Errorf("%q is a colour", wrong)
		}
	}
}
