package cosmos

import "github.com/reroute-go/reroute/idempotency"

// resource is a kind of thing that a path names.
type resource uint8

const (
	unknown resource = iota
	account
	database
	container
	item
	attachment
	sproc
	trigger
	udf
	conflict
	pkRange
	historicalRange
	containerOperation
	schema
	systemDocument
	partitionedSystemDocument
	user
	permission
	encryptionKey
	udt
	offer
	address
	media
	snapshotResource
	roleDefinition
	roleAssignment
	encryptionScope
	authPolicy
	accountOperation
)

// resources is the path grammar: below an owner, a word names one kind of thing. The order within an owner is the
// order in which words are compared, the usual first.
var resources = [...]struct {
	word      string
	owner     resource
	one, many string
}{
	unknown:                   {},
	account:                   {one: "account"},
	database:                  {"dbs", account, "database", "databases"},
	container:                 {"colls", database, "container", "containers"},
	item:                      {"docs", container, "item", "items"},
	attachment:                {"attachments", item, "attachment", "attachments"},
	sproc:                     {"sprocs", container, "stored procedure", "stored procedures"},
	trigger:                   {"triggers", container, "trigger", "triggers"},
	udf:                       {"udfs", container, "user defined function", "user defined functions"},
	conflict:                  {"conflicts", container, "conflict", "conflicts"},
	pkRange:                   {"pkranges", container, "partition key range", "partition key ranges"},
	historicalRange:           {"historicalpkranges", container, "historical key range", "historical key ranges"},
	containerOperation:        {"operations", container, "container operation", "container operations"},
	schema:                    {"schemas", container, "schema", "schemas"},
	systemDocument:            {"systemdocuments", container, "system document", "system documents"},
	partitionedSystemDocument: {"partitionedsystemdocuments", container, "system document", "system documents"},
	user:                      {"users", database, "user", "users"},
	permission:                {"permissions", user, "permission", "permissions"},
	encryptionKey:             {"clientencryptionkeys", database, "client encryption key", "client encryption keys"},
	udt:                       {"udts", database, "user defined type", "user defined types"},
	offer:                     {"offers", account, "offer", "offers"},
	address:                   {"addresses", account, "address", "addresses"},
	media:                     {"media", account, "media", "media"},
	snapshotResource:          {"snapshots", account, "snapshot", "snapshots"},
	roleDefinition:            {"roledefinitions", account, "role definition", "role definitions"},
	roleAssignment:            {"roleassignments", account, "role assignment", "role assignments"},
	encryptionScope:           {"encryptionscopes", account, "encryption scope", "encryption scopes"},
	authPolicy:                {"authpolicyelements", account, "auth policy element", "auth policy elements"},
	accountOperation:          {"operations", account, "account operation", "account operations"},
}

// children lists, for each kind, what can lie below one of it.
var children = func() (c [len(resources)][]resource) {
	for r := range resources {
		if owner := resources[r].owner; owner != unknown {
			c[owner] = append(c[owner], resource(r))
		}
	}
	return c
}()

// verb is what is done to a resource.
type verb uint8

const (
	other verb = iota // nothing that the grammar knows
	read
	readFeed
	readChangeFeed
	query
	planQuery
	checkAccess
	create
	upsert
	replace
	patch
	remove
	batch
	execute
	removeByKey
	truncate
	commit
)

// verbs tells what a verb does and what a repeat of it does: a repeated create conflicts, a repeated delete finds
// nothing, and so they end in the same state. What runs code or sweeps over many items does its work again each time
// (DESIGN rule 4).
var verbs = [...]struct {
	word  string // the name is this and the resource's, unless whole is set
	feed  bool   // the name takes the plural
	whole string
	write bool
	level idempotency.Level
	echo  idempotency.Echo
	// lenient: state ends the same by the service's convention, not by the nature of the request (see Intent.Lenient).
	lenient bool
}{
	other:          {whole: "unknown"},
	read:           {word: "read", level: idempotency.Safe},
	readFeed:       {word: "read", feed: true, level: idempotency.Safe},
	readChangeFeed: {whole: "read change feed", level: idempotency.Safe},
	query:          {word: "query", feed: true, level: idempotency.Safe},
	planQuery:      {whole: "plan query", level: idempotency.Safe},
	checkAccess:    {whole: "check metadata access", level: idempotency.Safe},
	create:         {word: "create", write: true, level: idempotency.Idempotent, echo: idempotency.Exists},
	upsert:         {word: "upsert", write: true, level: idempotency.Idempotent, lenient: true},
	replace:        {word: "replace", write: true, level: idempotency.Idempotent},
	patch:          {word: "patch", write: true, level: idempotency.Idempotent, lenient: true},
	remove:         {word: "delete", write: true, level: idempotency.Idempotent, echo: idempotency.Missing},
	batch:          {whole: "execute batch", write: true, level: idempotency.Idempotent, lenient: true},
	execute:        {whole: "execute stored procedure", write: true, level: idempotency.NonIdempotent},
	removeByKey:    {whole: "delete items by partition key", write: true, level: idempotency.NonIdempotent},
	truncate:       {whole: "truncate container", write: true, level: idempotency.NonIdempotent},
	commit:         {whole: "commit distributed transaction", write: true, level: idempotency.NonIdempotent},
}

// names has every operation's name ready, so that naming one costs nothing.
var names = func() (n [len(verbs)][len(resources)]string) {
	for v, does := range verbs {
		for r, is := range resources {
			switch {
			case does.whole != "":
				n[v][r] = does.whole
			case does.feed:
				n[v][r] = does.word + " " + is.many
			default:
				n[v][r] = does.word + " " + is.one
			}
		}
	}
	return n
}()
