package volume

import (
	"context"
	"database/sql"
)

// statements are the statements of a connection, each of which is prepared once. They are used with
// Volume.mu locked.
type statements struct {
	conn     *sql.Conn
	prepared map[string]*sql.Stmt
}

func (s *statements) of(ctx context.Context, query string) (*sql.Stmt, error) {
	if stmt := s.prepared[query]; stmt != nil {
		return stmt, nil
	}
	stmt, err := s.conn.PrepareContext(context.WithoutCancel(ctx), query)
	if err == nil {
		s.prepared[query] = stmt
	}
	return stmt, err
}

// ExecContext is that of sql.Conn.
func (s *statements) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	stmt, err := s.of(ctx, query)
	if err != nil {
		return nil, err
	}
	return stmt.ExecContext(ctx, args...)
}

// QueryContext is that of sql.Conn.
func (s *statements) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	stmt, err := s.of(ctx, query)
	if err != nil {
		return nil, err
	}
	return stmt.QueryContext(ctx, args...)
}

// QueryRowContext is that of sql.Conn.
func (s *statements) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	stmt, err := s.of(ctx, query)
	if err != nil {
		return s.conn.QueryRowContext(ctx, query, args...) // which has the error
	}
	return stmt.QueryRowContext(ctx, args...)
}

// close closes the statements and the connection.
func (s *statements) close() error {
	for _, stmt := range s.prepared {
		stmt.Close()
	}
	return s.conn.Close()
}
