package lab

import (
	"runtime"
	"testing"
)

func TestMachine(t *testing.T) {
	tests := []struct {
		name, cpuinfo, meminfo string
		cpu                    string
		memory                 uint64
	}{
		{
			"x86", "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Fast CPU @ 2.00GHz\n\nprocessor\t: 1\nmodel name\t: Other\n",
			"MemTotal:        2048 kB\nMemFree:         1024 kB\n", "Fast CPU @ 2.00GHz", 2 << 20,
		},
		{"no model, as on ARM", "processor\t: 0\nBogoMIPS\t: 50.00\n", "MemFree: 1 kB\n", "", 0},
		{"nothing", "", "", "", 0},
		{"nonsense", "model name", "MemTotal: much\n", "", 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := cpuModel(test.cpuinfo); got != test.cpu {
				t.Errorf("the processor is %q, want %q", got, test.cpu)
			}
			if got := memoryBytes(test.meminfo); got != test.memory {
				t.Errorf("the memory is %d, want %d", got, test.memory)
			}
		})
	}
	m := ThisMachine()
	if m.OS != runtime.GOOS || m.Arch != runtime.GOARCH || m.Cores < 1 || m.Go == "" {
		t.Errorf("this machine is %+v", m)
	}
	if runtime.GOOS == "linux" && m.MemoryBytes == 0 {
		t.Error("this machine has no memory")
	}
}
