package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/pflag"

	"ramet.dev/ramet/api"
)

// MaxBytes is the size of the largest file that is read.
const MaxBytes = 1 << 20

// Source is where the value of a flag comes from.
type Source string

// The sources.
const (
	Default     Source = "default"
	File        Source = "file"
	CommandLine Source = "flag"
)

// Setting is the value of a flag.
type Setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source Source `json:"source"`
}

// Apply sets the flags of f that the file has and the command line has not, and returns all settings by name, without
// hidden flags. A file that does not exist sets nothing. With an error, which names the file and the key, some flags may
// be set.
//
// Strings, integers, booleans and lists of strings are values. A boolean for a flag that may stand without a value means
// that it does, or that the flag is absent.
func Apply(f *pflag.FlagSet, file string) ([]Setting, error) {
	values, err := read(file)
	if err != nil {
		return nil, err
	}
	sources := map[string]Source{}
	f.Visit(func(flag *pflag.Flag) { sources[flag.Name] = CommandLine })
	for _, key := range slices.Sorted(maps.Keys(values)) {
		flag := f.Lookup(key)
		if flag == nil || flag.Hidden {
			return nil, api.Invalid(key, "%s: no such setting: 'ramet config' lists them", file)
		}
		if sources[key] == CommandLine {
			continue
		}
		texts, err := textsOf(flag, values[key])
		if err == nil {
			err = set(f, key, texts)
		}
		if err != nil {
			return nil, api.Invalid(key, "%s: %v", file, err)
		}
		sources[key] = File
	}
	var all []Setting
	f.VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden && flag.Name != "help" {
			s := Setting{Name: flag.Name, Value: flag.Value.String(), Source: Default}
			if many, ok := flag.Value.(pflag.SliceValue); ok {
				s.Value = strings.Join(many.GetSlice(), ", ")
			}
			if from, ok := sources[flag.Name]; ok {
				s.Source = from
			}
			all = append(all, s)
		}
	})
	return all, nil
}

func read(file string) (map[string]any, error) {
	info, err := os.Stat(file)
	if file == "" || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && info.Size() > MaxBytes {
		return nil, api.Errorf(api.CodeInvalid, "%s has %d bytes: at most %d are read", file, info.Size(), MaxBytes)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	values := map[string]any{}
	if err := toml.Unmarshal(text, &values); err != nil {
		var at toml.ParseError
		if errors.As(err, &at) {
			return nil, api.Errorf(api.CodeInvalid, "%s, line %d: %s", file, at.Position.Line, at.Message)
		}
		return nil, api.Errorf(api.CodeInvalid, "%s: %v", file, err)
	}
	return values, nil
}

// textsOf returns a value as arguments of a flag.
func textsOf(flag *pflag.Flag, value any) ([]string, error) {
	switch v := value.(type) {
	case string:
		return []string{v}, nil
	case int64:
		return []string{strconv.FormatInt(v, 10)}, nil
	case bool:
		if flag.NoOptDefVal == "" || flag.Value.Type() == "bool" {
			return []string{strconv.FormatBool(v)}, nil
		}
		if v {
			return []string{flag.NoOptDefVal}, nil
		}
		return nil, nil
	case []any:
		var out []string
		for _, e := range v {
			s, ok := e.(string)
			if !ok {
				return nil, fmt.Errorf("%v is not a text", e)
			}
			out = append(out, s)
		}
		if _, many := flag.Value.(pflag.SliceValue); !many {
			return nil, errors.New("it has one value, not a list")
		}
		return out, nil
	}
	return nil, errors.New("it is not a text, a number, true, false or a list of texts")
}

func set(f *pflag.FlagSet, name string, texts []string) error {
	for _, text := range texts {
		if err := f.Set(name, text); err != nil {
			return err
		}
	}
	return nil
}
