package lab

import (
	"runtime"
	"testing"

	"flashsale/test/kit/check"
)

func TestMachine(t *testing.T) {
	type test struct {
		cpuinfo, meminfo string
		cpu              string
		memory           uint64
	}
	check.Each(t, map[string]test{
		"x86": {
			"processor\t: 0\nmodel\t\t: 85\nmodel name\t: Fast CPU @ 2.00GHz\n\nprocessor\t: 1\nmodel name\t: Other\n",
			"MemTotal:        2048 kB\nMemFree:         1024 kB\n", "Fast CPU @ 2.00GHz", 2 << 20,
		},
		"no model, as on ARM": {"processor\t: 0\nBogoMIPS\t: 50.00\n", "MemFree: 1 kB\n", "", 0},
		"nothing":             {"", "", "", 0},
		"nonsense":            {"model name", "MemTotal: much\n", "", 0},
	}, func(t *testing.T, tc test) {
		check.Same(t, "processor", value(tc.cpuinfo, "model name"), tc.cpu)
		check.Same(t, "memory", memoryBytes(tc.meminfo), tc.memory)
	})
	m := ThisMachine()
	if m.OS != runtime.GOOS || m.Arch != runtime.GOARCH || m.Cores < 1 || m.Go == "" {
		t.Errorf("this machine is %+v", m)
	}
	if runtime.GOOS == "linux" && m.MemoryBytes == 0 {
		t.Error("this machine has no memory")
	}
}
