BEGIN TRANSACTION;
CREATE TABLE about (
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	CONSTRAINT pk_about PRIMARY KEY (name)
);
INSERT INTO "about" VALUES('transactions','3');
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0009');
CREATE TABLE answers (
	caller TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	time BIGINT NOT NULL, 
	digest BLOB NOT NULL, 
	status INTEGER NOT NULL, 
	headers TEXT NOT NULL, 
	body BLOB NOT NULL, 
	CONSTRAINT pk_answers PRIMARY KEY (caller, "key")
);
CREATE TABLE audit (
	id INTEGER NOT NULL, 
	time BIGINT NOT NULL, 
	user TEXT NOT NULL, 
	uid BIGINT NOT NULL, 
	action TEXT NOT NULL, 
	chain_id TEXT, 
	result TEXT NOT NULL, how TEXT DEFAULT '' NOT NULL, 
	CONSTRAINT pk_audit PRIMARY KEY (id)
);
INSERT INTO "audit" VALUES(1,7,'alice',1000,'pause','svc','done','');
CREATE TABLE chains (
	sequence INTEGER NOT NULL, 
	chain_id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	status TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	definition TEXT NOT NULL, 
	progress TEXT NOT NULL, script TEXT DEFAULT '' NOT NULL, environment TEXT DEFAULT '' NOT NULL, 
	CONSTRAINT pk_chains PRIMARY KEY (sequence), 
	CONSTRAINT uq_chains_chain_id UNIQUE (chain_id)
);
INSERT INTO "chains" VALUES(1,'svc','svc','alice','active','','{"chain_id":"svc","name":"svc","owner":"alice","request":{"name":"svc","user":"","limit":3600,"nodes":1,"partition":"","account":"","qos":"","cpus_per_node":0,"memory_mb_per_node":0,"gres_per_node":[],"features":[],"exclusive":false,"begin":0,"held":false,"nice":0,"dependencies":[],"reservation":"","node_list":"","requeue":null,"warn":null,"tag":"","batch":null},"done":{"exit_code":0,"file":"","links":0,"total_time":0},"failures":{"exit":{"recovery":"retry","retries":3,"backoff":60},"node":{"recovery":"continue","retries":3,"backoff":60},"cancelled":{"recovery":"stop","retries":3,"backoff":60}},"handover":{"policy":"none","signal":{"name":"TERM","lead":60,"batch_only":false},"max_overlap":0},"steering":"off","lead":600,"predictor":"","aim":{"kind":"cheapest","value":0.0},"tasks_state":""}','{"status":"active","reason":"","failures":0,"refusals":0,"not_before":0,"cancel_running":false,"ended_by":0,"unmarked":false,"resent":0,"refused_since":-1,"refused":-1,"rejection":"","permanent":0}','','');
INSERT INTO "chains" VALUES(2,'other','other','alice','active','it''s ☃','{"chain_id":"other","name":"other","owner":"alice","request":{"name":"other","user":"","limit":3600,"nodes":1,"partition":"","account":"","qos":"","cpus_per_node":0,"memory_mb_per_node":0,"gres_per_node":[],"features":[],"exclusive":false,"begin":0,"held":false,"nice":0,"dependencies":[],"reservation":"","node_list":"","requeue":null,"warn":null,"tag":"","batch":null},"done":{"exit_code":0,"file":"","links":0,"total_time":0},"failures":{"exit":{"recovery":"retry","retries":3,"backoff":60},"node":{"recovery":"continue","retries":3,"backoff":60},"cancelled":{"recovery":"stop","retries":3,"backoff":60}},"handover":{"policy":"none","signal":{"name":"TERM","lead":60,"batch_only":false},"max_overlap":0},"steering":"off","lead":600,"predictor":"","aim":{"kind":"cheapest","value":0.0},"tasks_state":""}','{"status":"active","reason":"it''s \u2603","failures":0,"refusals":0,"not_before":0,"cancel_running":false,"ended_by":0,"unmarked":false,"resent":0,"refused_since":-1,"refused":-1,"rejection":"","permanent":0}','','');
CREATE TABLE holders (
	name TEXT NOT NULL, 
	uid BIGINT NOT NULL, 
	CONSTRAINT pk_holders PRIMARY KEY (name)
);
CREATE TABLE jobs (
	job_id BIGINT NOT NULL, 
	submit BIGINT NOT NULL, 
	eligible BIGINT NOT NULL, 
	start BIGINT NOT NULL, 
	"end" BIGINT NOT NULL, 
	"limit" BIGINT NOT NULL, 
	memory_mb BIGINT NOT NULL, 
	nodes INTEGER NOT NULL, 
	cpus INTEGER NOT NULL, 
	state INTEGER NOT NULL, 
	user TEXT NOT NULL, 
	account TEXT NOT NULL, 
	partition TEXT NOT NULL, 
	qos TEXT NOT NULL, 
	name TEXT NOT NULL, 
	"constraint" TEXT NOT NULL, 
	gres TEXT NOT NULL, 
	CONSTRAINT pk_jobs PRIMARY KEY (job_id, submit)
);
INSERT INTO "jobs" VALUES(4,34852,34853,-1,34857,853972115330,505045144287,62,58,3,'','a','','a','','a','gres/gpu:a100=2');
INSERT INTO "jobs" VALUES(2,473188,473189,479626,479631,674004257396,68554087262,80,51,3,'a','run-7','run-7','','b☃','b☃','gres/npu=1');
INSERT INTO "jobs" VALUES(3,511821,511822,517316,517321,1008579492554,705147779189,26,67,3,'run-7','','','run-7','a','','gres/gpu:a100=2');
INSERT INTO "jobs" VALUES(0,755167,755168,756024,756029,43532828327,937479720133,35,51,3,'','b☃','a','b☃','b☃','a','gres/gpu:a100=2,gres/npu=2');
INSERT INTO "jobs" VALUES(1,950463,950464,950738,950743,581190041300,651945543991,84,98,3,'a','a','a','run-7','run-7','run-7','gres/gpu:a100=2,gres/npu=2');
CREATE TABLE journal (
	id INTEGER NOT NULL, 
	time BIGINT NOT NULL, 
	chain_id TEXT, 
	link INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	text TEXT NOT NULL, 
	details TEXT, 
	CONSTRAINT pk_journal PRIMARY KEY (id)
);
INSERT INTO "journal" VALUES(1,5,'svc',0,'action','link 3',NULL);
INSERT INTO "journal" VALUES(2,6,NULL,0,'event','nothing',NULL);
CREATE TABLE leases (
	office TEXT NOT NULL, 
	holder TEXT NOT NULL, 
	name TEXT NOT NULL, 
	term BIGINT NOT NULL, 
	beat BIGINT NOT NULL, 
	CONSTRAINT pk_leases PRIMARY KEY (office)
);
CREATE TABLE links (
	chain_id TEXT NOT NULL, 
	"index" INTEGER NOT NULL, 
	state TEXT NOT NULL, 
	job_id BIGINT NOT NULL, 
	planned BIGINT NOT NULL, 
	submit BIGINT NOT NULL, 
	start BIGINT NOT NULL, 
	"end" BIGINT NOT NULL, 
	document TEXT NOT NULL, 
	CONSTRAINT pk_links PRIMARY KEY (chain_id, "index"), 
	CONSTRAINT fk_links_chain_id FOREIGN KEY(chain_id) REFERENCES chains (chain_id) ON DELETE CASCADE
);
INSERT INTO "links" VALUES('svc',1,'ended',101,90,95,100,200,'{"index":1,"tag":"mirage:svc:1","planned":90,"state":"ended","job_id":101,"submit":95,"start":100,"end":200,"limit":-1,"limit_end":-1,"warned_until":-1,"warned_from":-1,"job_state":0,"exit_code":0,"reason":"","unpinned":false,"telling":-1,"retired":-1,"lost":[],"requeued":false,"missed":-1,"job_submit":-1}');
INSERT INTO "links" VALUES('svc',2,'ended',102,220,225,230,330,'{"index":2,"tag":"mirage:svc:2","planned":220,"state":"ended","job_id":102,"submit":225,"start":230,"end":330,"limit":-1,"limit_end":-1,"warned_until":-1,"warned_from":-1,"job_state":0,"exit_code":0,"reason":"","unpinned":false,"telling":-1,"retired":-1,"lost":[],"requeued":false,"missed":-1,"job_submit":-1}');
INSERT INTO "links" VALUES('svc',3,'ended',103,290,295,300,400,'{"index":3,"tag":"mirage:svc:3","planned":290,"state":"ended","job_id":103,"submit":295,"start":300,"end":400,"limit":-1,"limit_end":-1,"warned_until":-1,"warned_from":-1,"job_state":0,"exit_code":0,"reason":"","unpinned":false,"telling":-1,"retired":-1,"lost":[],"requeued":false,"missed":-1,"job_submit":-1}');
INSERT INTO "links" VALUES('other',1,'planned',0,10,-1,-1,-1,'{"index":1,"tag":"mirage:other:1","planned":10,"state":"planned","job_id":0,"submit":-1,"start":-1,"end":-1,"limit":-1,"limit_end":-1,"warned_until":-1,"warned_from":-1,"job_state":0,"exit_code":0,"reason":"","unpinned":false,"telling":-1,"retired":-1,"lost":[],"requeued":false,"missed":-1,"job_submit":-1}');
INSERT INTO "links" VALUES('other',2,'planned',0,20,-1,-1,-1,'{"index":2,"tag":"mirage:other:2","planned":20,"state":"planned","job_id":0,"submit":-1,"start":-1,"end":-1,"limit":-1,"limit_end":-1,"warned_until":-1,"warned_from":-1,"job_state":0,"exit_code":0,"reason":"","unpinned":false,"telling":-1,"retired":-1,"lost":[],"requeued":false,"missed":-1,"job_submit":-1}');
CREATE TABLE outcomes (
	chain_id TEXT NOT NULL, 
	predecessor INTEGER NOT NULL, 
	successor INTEGER NOT NULL, 
	predecessor_end BIGINT NOT NULL, 
	successor_start BIGINT NOT NULL, 
	interruption BIGINT NOT NULL, 
	overlap BIGINT NOT NULL, 
	CONSTRAINT pk_outcomes PRIMARY KEY (chain_id, predecessor)
);
INSERT INTO "outcomes" VALUES('svc',1,2,200,230,30,0);
INSERT INTO "outcomes" VALUES('svc',2,3,330,300,0,30);
CREATE TABLE scripts (
	digest TEXT NOT NULL, 
	content BLOB NOT NULL, 
	CONSTRAINT pk_scripts PRIMARY KEY (digest)
);
CREATE TABLE snapshots (
	time BIGINT NOT NULL, 
	pending INTEGER NOT NULL, 
	running INTEGER NOT NULL, 
	document BLOB NOT NULL, 
	CONSTRAINT pk_snapshots PRIMARY KEY (time)
);
INSERT INTO "snapshots" VALUES(8,3,3,X'4D49525301FF000000789C7D90DD6EC3200C46DFC5D74C6AD49B8957A9A28810ABF30226E367D214F5DD4716AD440AF40E736CF0775608AC96F0E122C815225904F92E60513E5224C701E4AD179002FAED08CA9046E80F1D032B8B3BEB2E970D7DB9F0BCCCA5219EF3717D08F0F4ADCCFF93ACB47689234EFB45884ECF203919B315CAE01088F36FF2ADDBDAADF2F3DE9B5FD2CE24FBB7DD0D16E489F80E023EDD38D004E22AA24F28BA6B2F8E784BD184CF40CD8E9CABC9D84DD8A6862CC5260D697C85D1D09D4683EDF998576FE7F2E43CC59FF6387A3AEDEE13F30BA705579C16D8725A3ACE4E0BAB392DB4E6B4D0AAD3821B4E0FF315A7875C75A787F193D3FEF10BA0331C93780163606464C0060000450003780163606464C0060000450003780163606464C0060000450003780163606464C0060000450003780163606464C0060000450003780163606464C0060000450003780163606464C0060000450003780163606464C0060000450003780163606464C0060000450003780163606464C0060000450003780163606464C0060000450003780163606464C0060000450003780163606464C0060000450003780163606464C0060000450003780163606464C0060000450003780163606464C0060000450003780163606464C0060000450003780163606464C0060000450003780163606464C0060000450003780163606464C0060000450003780163606464C0060000450003780163606464C0060000450003');
CREATE TABLE tokens (
	token_id TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	label TEXT NOT NULL, 
	scope TEXT NOT NULL, 
	digest BLOB NOT NULL, 
	created BIGINT NOT NULL, 
	expires BIGINT NOT NULL, 
	used BIGINT NOT NULL, 
	CONSTRAINT pk_tokens PRIMARY KEY (token_id)
);
CREATE TABLE waits (
	job_id BIGINT NOT NULL, 
	submit BIGINT NOT NULL, 
	start BIGINT NOT NULL, 
	nodes BIGINT NOT NULL, 
	"limit" BIGINT NOT NULL, 
	partition TEXT NOT NULL, account TEXT, qos TEXT, gres TEXT, gres_per_node BIGINT, eligible BIGINT, 
	CONSTRAINT pk_waits PRIMARY KEY (job_id, submit)
);
INSERT INTO "waits" VALUES(1,10,30,1,3600,'a100',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "waits" VALUES(2,20,60,1,3600,'a100',NULL,NULL,NULL,NULL,NULL);
CREATE INDEX ix_chains_owner ON chains (owner);
CREATE INDEX ix_links_job_id ON links (job_id);
CREATE INDEX ix_outcomes_successor_start ON outcomes (successor_start);
CREATE INDEX ix_journal_chain_id_id ON journal (chain_id, id);
CREATE INDEX ix_journal_kind_id ON journal (kind, id);
CREATE INDEX ix_journal_time ON journal (time);
CREATE INDEX ix_audit_chain_id_id ON audit (chain_id, id);
CREATE INDEX ix_audit_time ON audit (time);
CREATE INDEX ix_waits_start_job_id_submit ON waits (start, job_id, submit);
CREATE INDEX ix_jobs_submit ON jobs (submit);
CREATE INDEX ix_answers_time ON answers (time);
CREATE INDEX ix_waits_partition_start ON waits (partition, start);
CREATE INDEX ix_waits_partition_gres_qos_start ON waits (partition, gres, qos, start);
COMMIT;
