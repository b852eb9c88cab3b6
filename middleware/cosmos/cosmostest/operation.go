package cosmostest

import "slices"

// Operation is what a request does, as the service understands it.
type Operation string

// The operations the account knows. Scripts are stored procedures, triggers and user defined functions.
const (
	ReadAccount        Operation = "ReadAccount"        // GET /
	CreateDatabase     Operation = "CreateDatabase"     // POST /dbs
	ReadDatabase       Operation = "ReadDatabase"       // GET
	DeleteDatabase     Operation = "DeleteDatabase"     // DELETE, with all that is in it
	ListDatabases      Operation = "ListDatabases"      // GET /dbs
	QueryDatabases     Operation = "QueryDatabases"     // POST /dbs with a query
	CreateContainer    Operation = "CreateContainer"    // POST .../colls
	ReadContainer      Operation = "ReadContainer"      // GET and HEAD
	ReplaceContainer   Operation = "ReplaceContainer"   // PUT
	DeleteContainer    Operation = "DeleteContainer"    // DELETE, with all that is in it
	ListContainers     Operation = "ListContainers"     // GET .../colls
	QueryContainers    Operation = "QueryContainers"    // POST .../colls with a query
	ReadRanges         Operation = "ReadRanges"         // the partition key range feed
	CreateItem         Operation = "CreateItem"         // POST .../docs
	ReadItem           Operation = "ReadItem"           // GET
	UpsertItem         Operation = "UpsertItem"         // POST .../docs with x-ms-documentdb-is-upsert
	ReplaceItem        Operation = "ReplaceItem"        // PUT
	PatchItem          Operation = "PatchItem"          // PATCH
	DeleteItem         Operation = "DeleteItem"         // DELETE
	Batch              Operation = "Batch"              // transactional and bulk
	QueryItems         Operation = "QueryItems"         // POST .../docs with a query
	QueryPlan          Operation = "QueryPlan"          // POST .../docs with a query, asking how to run it
	ListItems          Operation = "ListItems"          // GET .../docs
	ChangeFeed         Operation = "ChangeFeed"         // .../docs with A-IM
	ExecuteSproc       Operation = "ExecuteSproc"       // POST to a stored procedure
	DeletePartitionKey Operation = "DeletePartitionKey" // POST .../operations/partitionkeydelete
	CreateScript       Operation = "CreateScript"       // POST to a feed of scripts
	ReadScript         Operation = "ReadScript"         // GET
	ReplaceScript      Operation = "ReplaceScript"      // PUT
	DeleteScript       Operation = "DeleteScript"       // DELETE
	ListScripts        Operation = "ListScripts"        // read feed and query
	ListConflicts      Operation = "ListConflicts"      // read feed and query
	ReadOffer          Operation = "ReadOffer"          // GET
	ReplaceOffer       Operation = "ReplaceOffer"       // PUT
	ListOffers         Operation = "ListOffers"         // read feed and query
	Unknown            Operation = "Unknown"            // a path or method the account does not serve
)

var (
	dataReads  = []Operation{ReadItem, QueryItems, QueryPlan, ListItems, ChangeFeed}
	dataWrites = []Operation{CreateItem, UpsertItem, ReplaceItem, PatchItem, DeleteItem, Batch, ExecuteSproc, DeletePartitionKey}
	metaWrites = []Operation{CreateDatabase, DeleteDatabase, CreateContainer, ReplaceContainer, DeleteContainer,
		CreateScript, ReplaceScript, DeleteScript, ReplaceOffer}
)

// DataReads lists the operations that read items, for Match.Operations.
func DataReads() []Operation { return slices.Clone(dataReads) }

// DataWrites lists the operations that change items, for Match.Operations.
func DataWrites() []Operation { return slices.Clone(dataWrites) }

// Data lists every operation on items: DataReads and DataWrites.
func Data() []Operation { return slices.Concat(dataReads, dataWrites) }

func (o Operation) isDataRead() bool  { return slices.Contains(dataReads, o) }
func (o Operation) isDataWrite() bool { return slices.Contains(dataWrites, o) }
func (o Operation) isMetaWrite() bool { return slices.Contains(metaWrites, o) }
