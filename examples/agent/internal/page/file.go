package page

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/belugalock/belugalock/examples/agent/internal/report"
)

// Check returns an error if Save could not write a page to path. It leaves nothing there, and a
// file that exists as it is.
func Check(path string) error {
	file, err := open(path)
	if err != nil {
		return err
	}
	return file.discard()
}

// Save writes the page about two runs to path. The page takes the place of a file that exists when
// it is complete: whatever fails, that file stays as it was.
func Save(path string, c *report.Comparison) error {
	var page bytes.Buffer
	if err := Write(&page, c); err != nil {
		return err
	}
	file, err := open(path)
	if err != nil {
		return err
	}
	if _, err := file.Write(page.Bytes()); err != nil {
		return errors.Join(err, file.discard())
	}
	return file.commit()
}

// pending is a file that waits, beside another one, to take its place.
type pending struct {
	*os.File
	path string
}

func open(path string) (*pending, error) {
	if path == "" {
		return nil, errors.New("it names no file")
	}
	var mode fs.FileMode // of a file that exists
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // a link stays one
	}
	switch about, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case about.IsDir():
		return nil, fmt.Errorf("%s is a directory", path)
	case !about.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no ordinary file", path)
	default:
		mode = about.Mode().Perm()
		file, err := os.OpenFile(path, os.O_WRONLY, 0) // a file that nobody may write is not replaced either
		if err != nil {
			return nil, err
		}
		_ = file.Close()
	}
	beside := filepath.Join(filepath.Dir(path), "."+rand.Text()+".html")
	file, err := os.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no directory %s", filepath.Dir(path))
	}
	if err != nil {
		return nil, fmt.Errorf("nothing can be written to %s: %w", filepath.Dir(path), errors.Unwrap(err))
	}
	p := &pending{file, path}
	if mode != 0 {
		err = file.Chmod(mode)
	}
	if err != nil {
		return nil, errors.Join(err, p.discard())
	}
	return p, nil
}

func (p *pending) discard() error { return errors.Join(p.Close(), os.Remove(p.Name())) }

func (p *pending) commit() error {
	err := p.Close()
	if err == nil {
		err = os.Rename(p.Name(), p.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(p.Name()))
	}
	return nil
}
