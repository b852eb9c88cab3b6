package cosmostest

import "time"

// CreateDatabase makes a database without a request. It does nothing when there is one.
func (a *Account) CreateDatabase(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ensureDatabase(id)
}

func (a *Account) ensureDatabase(id string) *database {
	if a.store.databases[id] == nil {
		a.store.databases[id] = a.newDatabase(id, time.Now())
	}
	return a.store.databases[id]
}

// Container describes a container for CreateContainer.
type Container struct {
	// Paths of the partition key. Default /pk. Two or three make a hierarchical key.
	Paths []string
	// KeyVersion is the version of the partition key hash, 1 or 2. Default 2.
	KeyVersion int
	// Ranges is how many partition key ranges the container has. Default Config.Ranges.
	Ranges int
}

// CreateContainer makes a container, and its database when missing, without a request. It panics on a Container that cannot be or
// an id that is taken.
func (a *Account) CreateContainer(db, id string, c Container) {
	if len(c.Paths) == 0 {
		c.Paths = []string{"/pk"}
	}
	if c.KeyVersion == 0 {
		c.KeyVersion = 2
	}
	kind := "Hash"
	if len(c.Paths) > 1 {
		kind = "MultiHash"
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.ensureDatabase(db)
	if d.containers[id] != nil {
		panic("cosmostest: container " + id + " exists")
	}
	coll, err := a.newContainer(d, map[string]any{"id": id,
		"partitionKey": map[string]any{"paths": c.Paths, "kind": kind, "version": c.KeyVersion}}, c.Ranges, time.Now())
	if err != nil {
		panic("cosmostest: " + err.Error())
	}
	d.containers[id] = coll
}
