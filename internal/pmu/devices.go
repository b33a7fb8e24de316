package pmu

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// A Processor says which one it is.
type Processor struct {
	Vendor        string // "GenuineIntel"
	Family, Model int
}

// ParseCPUInfo reads the first processor of /proc/cpuinfo.
func ParseCPUInfo(text string) (p Processor, err error) {
	for _, line := range strings.Split(text, "\n") {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(name) {
		case "vendor_id":
			p.Vendor = value
		case "cpu family":
			p.Family, err = strconv.Atoi(value)
		case "model":
			p.Model, err = strconv.Atoi(value)
		case "":
			return p, nil // the others are like it
		}
		if err != nil {
			return p, fmt.Errorf("/proc/cpuinfo: %w", err)
		}
	}
	return p, nil
}

// A Device is a directory of /sys/bus/event_source/devices.
type Device struct {
	Name   string
	Type   uint32
	Attrs  map[string]string // of those in it: nr_addr_filters, max_nonturbo_ratio, tsc_art_ratio
	Caps   map[string]string // its caps directory
	Format map[string]string // its format directory: where in an attribute a setting lies, as "config:14-17"
	Events map[string]string // its events directory: settings by the kernel's names, as "event=0xd0,umask=0x82"
}

// Devices are a machine's, by name; those that no sampling here needs are left out.
type Devices map[string]*Device

// ReadDevices reads the devices below a tree such as /sys/bus/event_source/devices.
func ReadDevices(tree fs.FS) (Devices, error) {
	all := Devices{}
	for _, name := range []string{"cpu", "cpu_core", "cpu_atom", "intel_pt", "ibs_op"} {
		text, err := fs.ReadFile(tree, name+"/type")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		typ, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%s/type: %w", name, err)
		}
		d := &Device{Name: name, Type: uint32(typ), Attrs: map[string]string{}, Caps: map[string]string{}, Format: map[string]string{}, Events: map[string]string{}}
		for dir, to := range map[string]map[string]string{"caps": d.Caps, "format": d.Format, "events": d.Events} {
			entries, err := fs.ReadDir(tree, path.Join(name, dir))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			for _, e := range entries {
				text, err := fs.ReadFile(tree, path.Join(name, dir, e.Name()))
				if err != nil {
					return nil, err
				}
				to[e.Name()] = strings.TrimSpace(string(text))
			}
		}
		for _, attr := range []string{"nr_addr_filters", "max_nonturbo_ratio", "tsc_art_ratio"} {
			if text, err := fs.ReadFile(tree, path.Join(name, attr)); err == nil {
				d.Attrs[attr] = strings.TrimSpace(string(text))
			}
		}
		all[name] = d
	}
	return all, nil
}

// number reads a capability or attribute; what is none is 0.
func number(text string, base int) uint64 {
	v, err := strconv.ParseUint(text, base, 64)
	if err != nil {
		return 0
	}
	return v
}

// set puts a setting's value into config where the format directory says; false: the device has no such setting, or no room for the value.
func (d *Device) set(config *uint64, name string, v uint64) bool {
	var other uint64
	return d.setOf(config, &other, name, v) && other == 0
}

// setOf does so with config or config1.
func (d *Device) setOf(config, config1 *uint64, name string, v uint64) bool {
	which, place, ok := strings.Cut(d.Format[name], ":")
	switch {
	case ok && which == "config":
	case ok && which == "config1":
		config = config1
	default:
		return false
	}
	lo, hi, ranged := strings.Cut(place, "-")
	first, err := strconv.Atoi(lo)
	last := first
	if err == nil && ranged {
		last, err = strconv.Atoi(hi)
	}
	if err != nil || first < 0 || last > 63 || last < first || last-first < 63 && v >= 1<<(last-first+1) {
		return false
	}
	*config = *config&^((1<<(last-first+1)-1)<<first) | v<<first
	return true
}

// named gives config and config1 of an event that the kernel has a name for; false: it has none, or not one of plain settings.
func (d *Device) named(name string) (config, config1 uint64, ok bool) {
	for _, setting := range strings.Split(d.Events[name], ",") {
		key, text, valued := strings.Cut(setting, "=")
		v, err := uint64(1), error(nil)
		if valued {
			v, err = strconv.ParseUint(strings.TrimSpace(text), 0, 64)
		}
		if err != nil || !d.setOf(&config, &config1, strings.TrimSpace(key), v) {
			return 0, 0, false
		}
	}
	return config, config1, true
}
