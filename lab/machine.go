package lab

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Machine describes the machine on which the figures were measured.
type Machine struct {
	OS          string `json:"os"`
	Arch        string `json:"arch"`
	CPU         string `json:"cpu"` // model; empty: not known
	Cores       int    `json:"cores"`
	MemoryBytes uint64 `json:"memory_bytes"` // 0: not known
	Go          string `json:"go"`
}

// ThisMachine describes the machine that the process runs on.
func ThisMachine() Machine {
	cpuinfo, _ := os.ReadFile("/proc/cpuinfo") // of Linux
	meminfo, _ := os.ReadFile("/proc/meminfo")
	return Machine{
		OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: value(string(cpuinfo), "model name"), Cores: runtime.NumCPU(),
		MemoryBytes: memoryBytes(string(meminfo)), Go: runtime.Version(),
	}
}

func memoryBytes(meminfo string) uint64 {
	kilobytes, err := strconv.ParseUint(strings.TrimSuffix(value(meminfo, "MemTotal"), " kB"), 10, 54)
	if err != nil {
		return 0
	}
	return kilobytes << 10
}

// value returns the text after a name and a colon, from the first line that has them.
func value(text, name string) string {
	for line := range strings.Lines(text) {
		if key, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// String describes the machine on one line.
func (m Machine) String() string {
	parts := []string{m.OS + "/" + m.Arch, count(m.Cores, "core")}
	if m.CPU != "" {
		parts = append(parts, m.CPU)
	}
	if m.MemoryBytes > 0 {
		parts = append(parts, fmt.Sprintf("%.1f GiB", float64(m.MemoryBytes)/(1<<30)))
	}
	return strings.Join(append(parts, m.Go), ", ")
}
