package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// poll asks for one event after the other; the server answers when there is one. "last" is the last.
func poll(url string) error {
	// With a connection that is kept the client would ask again by itself, and nobody would see it.
	c := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	for next := 0; ; {
		event, err := ask(c, fmt.Sprintf("%s?next=%d", url, next))
		switch {
		case err != nil && wasReset():
			fmt.Println("reset")
			continue
		case err != nil:
			return err
		}
		next++
		text, more := strings.CutPrefix(event, "more ")
		fmt.Println(text)
		if !more {
			return nil
		}
	}
}

func ask(c *http.Client, url string) (string, error) {
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	r.Header = header()
	res, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	return string(b), err
}
