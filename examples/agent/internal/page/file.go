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
	switch about, err := os.Stat(path); {
	case path == "":
		return errors.New("it names no file")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err == nil && about.IsDir():
		return fmt.Errorf("%s is a directory", path)
	case err == nil && !about.Mode().IsRegular():
		return fmt.Errorf("%s is no ordinary file", path)
	}
	beside, err := put(path, nil)
	if err != nil {
		return err
	}
	return os.Remove(beside)
}

// Save writes the page about three runs to path. The page takes the place of a file that exists when
// it is complete: whatever fails, that file stays as it was.
func Save(path string, c *report.Comparison) error {
	var page bytes.Buffer
	if err := Write(&page, c); err != nil {
		return err
	}
	beside, err := put(path, page.Bytes())
	if err == nil {
		err = os.Rename(beside, path)
	}
	return err
}

// put writes a new file into the directory of path.
func put(path string, text []byte) (beside string, err error) {
	dir := filepath.Dir(path)
	beside = filepath.Join(dir, "."+rand.Text()+".html")
	if err := os.WriteFile(beside, text, 0o666); err != nil {
		_ = os.Remove(beside)
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("there is no directory %s", dir)
		}
		return "", fmt.Errorf("nothing can be written to %s: %w", dir, errors.Unwrap(err))
	}
	return beside, nil
}
