package handler

import (
	"testing"
	"time"

	"flashsale/service"
)

func TestParsePrefer(t *testing.T) {
	for name, tc := range map[string]struct {
		headers []string
		want    service.Preference
		bad     bool
	}{
		"nothing":                {nil, service.Preference{}, false},
		"an empty header":        {[]string{""}, service.Preference{}, false},
		"async":                  {[]string{"respond-async"}, service.Preference{Async: true}, false},
		"a wait":                 {[]string{"wait=5"}, service.Preference{Wait: 5 * time.Second}, false},
		"no wait":                {[]string{"wait=0"}, service.Preference{Async: true}, false},
		"both":                   {[]string{"respond-async, wait=5"}, service.Preference{Async: true, Wait: 5 * time.Second}, false},
		"in two headers":         {[]string{"respond-async", "wait=5"}, service.Preference{Async: true, Wait: 5 * time.Second}, false},
		"in capitals, spaced":    {[]string{" Respond-Async ,\tWAIT = 5 "}, service.Preference{Async: true, Wait: 5 * time.Second}, false},
		"what nobody knows":      {[]string{"return=minimal, handling=lenient"}, service.Preference{}, false},
		"a day":                  {[]string{"wait=65535"}, service.Preference{Wait: 65535 * time.Second}, false},
		"a wait without seconds": {[]string{"wait"}, service.Preference{}, true},
		"an empty wait":          {[]string{"wait="}, service.Preference{}, true},
		"a wait in words":        {[]string{"wait=long"}, service.Preference{}, true},
		"a wait below none":      {[]string{"wait=-1"}, service.Preference{}, true},
		"half a second":          {[]string{"wait=0.5"}, service.Preference{}, true},
		"a wait for ever":        {[]string{"wait=99999999999999999999"}, service.Preference{}, true},
		"a bad one behind":       {[]string{"respond-async", "wait=x"}, service.Preference{Async: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := parsePrefer(tc.headers)
			if ok == tc.bad || ok && got != tc.want {
				t.Errorf("%+v, %t, want %+v", got, ok, tc.want)
			}
		})
	}
}
